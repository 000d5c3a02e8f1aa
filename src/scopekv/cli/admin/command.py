"""What every `scopekv admin` command has: the registry, `--json`, errors that help."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from scopekv.cli.admin.output import print_answer
from scopekv.cli.options import json_option, registry_options, registry_url
from scopekv.errors import ScopeKVError


def command(
    parent: click.Group, name: str, *params: Callable[[Any], Any], example: str
) -> Callable[[Callable[..., Any]], click.Command]:
    """Make a command of `parent` from a function of the service and the command's parameters.

    The function returns the struct to print. An error of ours goes to stderr, with exit code 1;
    wrong usage exits with 2.
    """

    def wrap(function: Callable[..., Any]) -> click.Command:
        def run(registry: str | None, data_dir: Path | None, as_json: bool, **values: Any) -> None:
            try:
                print_answer(_call(registry_url(registry, data_dir), function, values), as_json)
            except ScopeKVError as error:
                raise click.ClickException(str(error)) from error

        run.__doc__ = f"{function.__doc__}\n\n\b\nExample:\n  scopekv admin {example}\n"
        decorated: Any = run
        for decorate in reversed((*params, registry_options, json_option)):
            decorated = decorate(decorated)
        made: click.Command = parent.command(name)(decorated)
        return made

    return wrap


def _call(url: str, function: Callable[..., Any], values: dict[str, Any]) -> Any:
    # Here, because SQLAlchemy takes a quarter of a second to import, and --help needs none of it.
    from scopekv.compose import open_registry
    from scopekv.gateway.administration import Administration

    file = Path(url.removeprefix("sqlite:///"))
    new = url.startswith("sqlite:///") and not file.exists()
    registry = open_registry(url)
    try:
        return function(Administration(registry), **values)
    finally:
        if new:  # a mistyped directory looks empty, not wrong
            click.echo(f"made a new registry at {file}", err=True)
        registry.close()


def page_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--limit` and `--after`."""
    limit = click.option(
        "--limit", type=click.IntRange(1, 1000), default=100, show_default=True, help="At most."
    )
    after = click.option("--after", default="", help="Continue after this one.")
    return limit(after(function))
