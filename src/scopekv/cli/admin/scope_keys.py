"""`scopekv admin scope-keys`: the root key that wraps sealing keys, while all serve on."""

from __future__ import annotations

from collections.abc import Callable
from inspect import cleandoc
from pathlib import Path
from typing import Any

import click
import msgspec

from scopekv.cli.admin.output import print_answer
from scopekv.cli.options import (
    Function,
    default_data_dir,
    json_option,
    registry_options,
    registry_url,
)
from scopekv.errors import Conflict, ScopeKVError


class ScopeKeysView(msgspec.Struct, frozen=True, kw_only=True):
    """`version`: of the root key, as new keys are wrapped. `by_kind`: how many keys there are."""

    version: str
    total: int
    to_rewrap: int
    by_kind: dict[str, int]
    by_version: dict[str, int]


class RotatedView(msgspec.Struct, frozen=True, kw_only=True):
    before: str
    version: str
    to_rewrap: int


class RewrappedView(msgspec.Struct, frozen=True, kw_only=True):
    """`unreadable`: keys that no version opens; `dropped`: of these replaced by new ones.

    `retired`: older versions given up.
    """

    version: str
    moved: int
    unreadable: int
    dropped: int
    retired: int


@click.group("scope-keys")
def scope_keys() -> None:
    """Sealing keys: how they are wrapped, and moving them to a new root key (docs/keys.md)."""


def _verb(
    name: str, *params: Callable[[Any], Any], example: str
) -> Callable[[Callable[..., Any]], click.Command]:
    """Make a verb of a function of registry, wrapper and its own options; it returns a struct."""

    def wrap(function: Callable[..., Any]) -> click.Command:
        def run(
            registry: str | None,
            data_dir: Path | None,
            config: Path | None,
            as_json: bool,
            **values: Any,
        ) -> None:
            try:
                print_answer(_call(registry, data_dir, config, function, values), as_json)
            except ScopeKVError as error:
                raise click.ClickException(str(error)) from error

        run.__doc__ = (
            f"{cleandoc(function.__doc__ or '')}\n\n\b\nExample:\n  scopekv admin {example}\n"
        )
        decorated: Any = run
        for decorate in reversed((*params, _config_option, registry_options, json_option)):
            decorated = decorate(decorated)
        made: click.Command = scope_keys.command(name)(decorated)
        return made

    return wrap


def _config_option(function: Function) -> Function:
    option = click.option(
        "--config",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="The gateway's scopekv.toml: its registry and its [vault].",
    )
    return option(function)


def _call(
    registry: str | None,
    data_dir: Path | None,
    config: Path | None,
    function: Callable[..., Any],
    values: dict[str, Any],
) -> Any:
    # Here, because SQLAlchemy takes a quarter of a second to import, and --help needs none of it.
    from scopekv.compose import open_registry, open_wrapper
    from scopekv.gateway.settings_file import read_settings

    settings = read_settings(config) if config else None
    folder = (data_dir or default_data_dir()).expanduser().absolute()
    url = registry_url(registry or (settings.registry if settings else None), folder)
    wrapper = open_wrapper(folder, settings.vault if settings else None)
    try:
        opened = open_registry(url)
        try:
            return function(opened, wrapper, **values)
        finally:
            opened.close()
    finally:
        wrapper.close()


@_verb("status", example="scope-keys status")
def _status(registry: Any, wrapper: Any) -> ScopeKeysView:
    """Show how many keys there are, and which version of the root key wraps them."""
    from scopekv.store.scope_keys import counts

    version = wrapper.version
    by_kind: dict[str, int] = {}
    by_version: dict[str, int] = {version: 0}
    for (kind, named), count in sorted(counts(registry).items()):
        by_kind[kind] = by_kind.get(kind, 0) + count
        by_version[named] = by_version.get(named, 0) + count
    total = sum(by_kind.values())
    return ScopeKeysView(
        version=version,
        total=total,
        to_rewrap=total - by_version[version],
        by_kind=by_kind,
        by_version=by_version,
    )


@_verb("rotate", example="scope-keys rotate")
def _rotate(registry: Any, wrapper: Any) -> RotatedView:
    """Make a new version of the root key. What older ones wrapped still opens.

    With a key file, copy keys/wrap.key to the other gateways before you go on.
    """
    before = wrapper.version
    version = wrapper.rotate()
    _audit(registry, "scope_keys_rotate", version)
    return RotatedView(before=before, version=version, to_rewrap=_status_of(registry, version))


@_verb(
    "rewrap",
    click.option(
        "--drop-unreadable",
        is_flag=True,
        help="Replace keys that no version opens: cached blocks are lost.",
    ),
    click.option("--retire", is_flag=True, help="Then give up all older versions, for good."),
    example="scope-keys rewrap",
)
def _rewrap(registry: Any, wrapper: Any, drop_unreadable: bool, retire: bool) -> RewrappedView:
    """Move every key to the current version, in batches, while all serve on.

    Nothing that is cached is lost. `--retire` some minutes after a first run, when every gateway
    has the new version: backups of the registry from before then open no more.
    """
    from scopekv.store.scope_keys import rewrap

    version = wrapper.version

    def progress(moved: int, left: int) -> None:
        click.echo(f"{moved} moved, {left} left", err=True)

    done = rewrap(registry, wrapper, drop_unreadable=drop_unreadable, progress=progress)
    _audit(registry, "scope_keys_rewrap", version)
    retired = 0
    if retire:
        left = _status_of(registry, version)
        if left:
            raise Conflict(
                f"{left} keys are not wrapped by {version}, so no version was retired; put the "
                "version that opens them back, or add --drop-unreadable"
            )
        retired = wrapper.retire()
        _audit(registry, "scope_keys_retire", version)
    return RewrappedView(
        version=version,
        moved=done.moved,
        unreadable=done.unreadable,
        dropped=done.dropped,
        retired=retired,
    )


def _status_of(registry: Any, version: str) -> int:
    """How many keys other versions wrapped."""
    from scopekv.store.scope_keys import counts

    return sum(count for (_, named), count in counts(registry).items() if named != version)


def _audit(registry: Any, action: str, version: str) -> None:
    from scopekv.gateway.administration.gate import LOCAL_OPERATOR, actor_name

    actor = actor_name(LOCAL_OPERATOR)
    registry.audit(
        actor=actor, action=action, resource=f"root key:{version}", outcome="allowed", reason=""
    )
