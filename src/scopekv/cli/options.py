"""Options that several verbs share: where the registry is, and the form of the output."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

Function = TypeVar("Function", bound=Callable[..., Any])

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def registry_options(function: Function) -> Function:
    """Add `--registry` and `--data-dir`; see `registry_url`."""
    registry = click.option(
        "--registry",
        metavar="URL",
        envvar="SCOPEKV_REGISTRY",
        show_envvar=True,
        help="sqlite:////path/registry.db or postgresql://USER@HOST/DATABASE. "
        "[default: registry.db in the data directory]",
    )
    return data_dir_option(registry(function))


def data_dir_option(function: Function) -> Function:
    """Add `--data-dir`."""
    option = click.option(
        "--data-dir",
        metavar="PATH",
        type=click.Path(file_okay=False, path_type=Path),
        envvar="SCOPEKV_DATA_DIR",
        show_envvar=True,
        help="Where ScopeKV keeps its files. [default: ~/.local/share/scopekv]",
    )
    return option(function)


def json_option(function: Function) -> Function:
    """Add `--json`."""
    option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
    return option(function)


def default_data_dir() -> Path:
    """`$XDG_DATA_HOME/scopekv`, else `~/.local/share/scopekv`."""
    # A relative XDG path is to be ignored (XDG Base Directory Specification).
    base = os.environ.get("XDG_DATA_HOME", "")
    folder = Path(base) if os.path.isabs(base) else Path.home() / ".local" / "share"
    return folder / "scopekv"


def registry_url(registry: str | None, data_dir: Path | None) -> str:
    """The registry to use: the URL given, else the file in the data directory."""
    if registry:
        return registry
    folder = (data_dir or default_data_dir()).expanduser().absolute()
    return f"sqlite:///{folder / 'registry.db'}"


def duration(_context: click.Context, _param: click.Parameter, value: str | None) -> int | None:
    """Option callback: `45s`, `30m`, `12h`, `90d` as whole seconds."""
    if value is None:
        return None
    number, unit = value[:-1], value[-1:]
    if unit not in _UNITS or not (number.isascii() and number.isdigit()) or len(number) > 9:
        raise click.BadParameter(f"{value[:40]!r} is no duration; write 45s, 30m, 12h or 90d")
    return int(number) * _UNITS[unit]


def member(_context: click.Context, _param: click.Parameter, value: str) -> tuple[str, str]:
    """Argument callback: `ORG/NAME`, something inside an organisation."""
    org, slash, name = value.partition("/")
    if not (org and slash and name):
        raise click.BadParameter(f"{value[:80]!r} is not ORG/NAME, as in acme/alice")
    return org, name
