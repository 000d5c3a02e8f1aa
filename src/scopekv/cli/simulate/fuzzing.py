"""`scopekv simulate --fuzz`: look for broken laws by seed, and make what is found small."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click

from scopekv.cli.options import json_option
from scopekv.errors import ScopeKVError
from scopekv.simulate.fuzz.operations import kept, operations
from scopekv.simulate.fuzz.runs import Found, run, run_many, shrink

_FLAG = "--fuzz"


class OrFuzz(click.Command):
    """A command that is another one, with options of its own, where `--fuzz` is given."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        if _FLAG in args:
            left = [one for one in args if one != _FLAG]
            return fuzz.make_context(f"{info_name} {_FLAG}", left, parent, **extra)
        return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        return super().invoke(ctx) if ctx.command is self else ctx.command.invoke(ctx)


@click.command()
@click.option("--seeds", type=click.IntRange(1), default=200, show_default=True, help="How many.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="The first.")
@click.option("--operations", "numbers", metavar="N,N,...", help="Only these of one seed.")
@click.option(
    "--shrink", "shrinks", is_flag=True, help="Leave operations out while it still fails."
)
@json_option
def fuzz(seeds: int, seed: int, numbers: str | None, shrinks: bool, as_json: bool) -> None:
    """Run the real parts in a failing world, one for each seed, and check every law.

    A seed decides all that happens: the same seed finds the same. Ends with status 1 where a law
    is broken, and prints the command that replays it. See docs/fuzzing.md.
    """
    if numbers is not None and seeds != 1:
        raise click.UsageError("--operations is of one seed: add --seeds 1")
    began = time.monotonic()
    try:
        found = _search(seed, seeds, numbers)
    except ScopeKVError as error:
        raise click.ClickException(str(error)) from error
    if shrinks:
        found = [shrink(one) for one in found]
    _print(found, seeds, time.monotonic() - began, as_json=as_json)
    if found:
        sys.exit(1)


def _search(seed: int, seeds: int, numbers: str | None) -> list[Found]:
    if numbers is not None:
        one = run(seed, kept(seed, numbers))
        return [] if one is None else [one]
    with click.progressbar(length=seeds, file=sys.stderr, label="Seeds") as bar:
        return run_many(seed, seeds, lambda _: bar.update(1))


def _print(found: Sequence[Found], seeds: int, seconds: float, *, as_json: bool) -> None:
    if as_json:
        listed = [asdict(one) | {"command": one.command} for one in found]
        figures = {"seeds": seeds, "violations": len(found), "seconds": round(seconds, 1)}
        click.echo(json.dumps(figures | {"found": listed}))
        return
    for one in found:
        click.echo(f"seed {one.seed}: {one.words}")
        if one.operations is not None:
            names = {each.number: str(each) for each in operations(one.seed)}
            click.echo("  " + " ".join(names[number] for number in one.operations))
        click.echo(f"  {one.command}")
    click.echo(f"{seeds} seeds, {len(found)} violations, {seconds:.1f} s")
