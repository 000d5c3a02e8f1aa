"""`scopekv admin instance`: asks a running gateway, since instances are its own."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import quote

import click
import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from scopekv.cli.options import json_option
from scopekv.errors import Misuse, ScopeKVError, Unavailable

PATH = "/admin/v1/instances"
ANSWER_BYTES_MAX = 1 << 22
_URL = click.option(
    "--gateway",
    "url",
    default="http://127.0.0.1:8080",
    show_default=True,
    envvar="SCOPEKV_GATEWAY",
    show_envvar=True,
    help="Where the gateway is. With several: one after the other.",
)
_KEY = click.option(
    "--api-key",
    "key",
    envvar="SCOPEKV_API_KEY",
    show_envvar=True,
    required=True,
    help="Of an account with the role operator. Better in the environment than in argv.",
)
_NAME = click.argument("name", metavar="NAME")


class _Error(msgspec.Struct):
    message: str


class _Refusal(msgspec.Struct):
    """What of a refusal is shown."""

    error: _Error


@click.group()
def instance() -> None:
    """List the gateway's instances; take one out of use and back in, or start it anew.

    \b
    Before an engine is stopped:
      scopekv admin instance drain gpu-0     # nothing new goes there
      scopekv admin instance list            # until its state is drained
    """


@instance.command("list")
@_URL
@_KEY
@json_option
def _list(url: str, key: str, as_json: bool) -> None:
    """List instances: state, requests in flight, measured prefill speed.

    \b
    Example:
      scopekv admin instance list
    """
    _show(_ask("GET", PATH, url, key)["data"], as_json)


@instance.command("drain")
@_NAME
@_URL
@_KEY
@json_option
def _drain(name: str, url: str, key: str, as_json: bool) -> None:
    """Send NAME nothing new. What it has been sent goes on until it ends.

    \b
    Example:
      scopekv admin instance drain gpu-0
    """
    _show([_ask("POST", f"{PATH}/{quote(name, safe='')}/drain", url, key)], as_json)


@instance.command("resume")
@_NAME
@_URL
@_KEY
@json_option
def _resume(name: str, url: str, key: str, as_json: bool) -> None:
    """Use NAME again.

    \b
    Example:
      scopekv admin instance resume gpu-0
    """
    _show([_ask("POST", f"{PATH}/{quote(name, safe='')}/resume", url, key)], as_json)


@instance.command("restart")
@_NAME
@_URL
@_KEY
@json_option
def _restart(name: str, url: str, key: str, as_json: bool) -> None:
    """End NAME and start it anew, where `scopekv up` runs it. It is `down` until it is ready.

    \b
    Example:
      scopekv admin instance restart engine-0
    """
    _show([_ask("POST", f"{PATH}/{quote(name, safe='')}/restart", url, key)], as_json)


def _ask(method: str, path: str, url: str, key: str) -> dict[str, Any]:
    try:
        return asyncio.run(_call(method, path, url, key))
    except ScopeKVError as error:
        raise click.ClickException(str(error)) from error


async def _call(method: str, path: str, url: str, key: str) -> dict[str, Any]:
    from scopekv.gateway.http.client import ClientPool

    pool = ClientPool(url)
    try:
        headers = [(b"authorization", b"Bearer " + key.encode("utf-8"))]
        async with await pool.request(method, path, headers, b"", timeout_seconds=30) as answer:
            content = await answer.read(ANSWER_BYTES_MAX)
    finally:
        await pool.close()
    try:
        if answer.status != 200:
            told = msgspec.json.decode(content, type=_Refusal).error.message
            raise Misuse(f"{told} (status {answer.status})")
        return msgspec.json.decode(content, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:  # an engine's port, say
        raise Unavailable(f"{url} does not answer as a ScopeKV gateway") from error


def _show(rows: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode({"data": rows}), indent=2).decode())
        return
    table = Table(box=None)
    for column in rows[0] if rows else ("name",):
        table.add_column(column)
    for row in rows:
        cells = [", ".join(v) if isinstance(v, list) else v for v in row.values()]
        table.add_row(*(Text("" if cell is None else str(cell)) for cell in cells))
    Console(soft_wrap=True).print(table)
