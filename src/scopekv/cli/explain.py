"""`scopekv explain`: why a request of yours was not read from the cache."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import click

from scopekv.adapters.json_http import JsonHttp
from scopekv.cli.options import json_option
from scopekv.errors import ScopeKVError, Unavailable
from scopekv.gateway.addresses import server_root

SECONDS_MAX = 30.0
_ANSWER = {"prompt_tokens", "common_tokens", "expected_tokens", "cached_tokens", "causes"}


@click.command()
@click.argument("request_id", required=False)
@click.option("--earlier", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--later", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--api", default="/v1/chat/completions", show_default=True)
@click.option("--url", default="http://127.0.0.1:8080", show_default=True, help="The gateway.")
@click.option(
    "--key",
    envvar="SCOPEKV_API_KEY",
    show_envvar=True,
    required=True,
    help="Your API key. An option's value shows in `ps`: better the variable.",
)
@json_option
def explain(
    request_id: str | None,
    earlier: Path | None,
    later: Path | None,
    api: str,
    url: str,
    key: str,
    as_json: bool,
) -> None:
    """Say why a request was not read from the cache, and what to change.

    \b
    REQUEST_ID is the answer's header X-ScopeKV-Request; a gateway remembers each caller's last 32.
    Or compare two request bodies that you have in files:

    \b
    scopekv explain req_1f0c...
    scopekv explain --earlier yesterday.json --later today.json
    """
    body: dict[str, Any]
    if request_id:
        body = {"request_id": request_id}
    elif earlier and later:
        body = {"earlier": _body(earlier), "later": _body(later), "api": api}
    else:
        raise click.UsageError(
            "give a REQUEST_ID (the answer's header X-ScopeKV-Request), or --earlier and --later"
        )
    headers = {"Authorization": f"Bearer {key}"}
    base = server_root(url)
    try:
        http = JsonHttp(base, what="the gateway", ca_file=None, timeout_seconds=SECONDS_MAX)
        with contextlib.closing(http):
            status, answer = http.call("POST", "/v1/scopekv/explain", headers, body)
    except Unavailable as error:
        raise click.ClickException(f"{error} at {base}: start it, or name it with --url") from error
    except ScopeKVError as error:
        raise click.ClickException(str(error)) from error
    if status != 200 or not answer.keys() >= _ANSWER:
        refused = answer.get("error")
        told = refused.get("message") if isinstance(refused, dict) else None
        raise click.ClickException(
            str(told)
            if told
            else f"{base} answered {status} and explains nothing: is it a gateway?"
        )
    if as_json:
        click.echo(json.dumps(answer))
        return
    _print(answer)


def _body(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text("utf-8-sig"))
    except (ValueError, RecursionError):
        raise click.ClickException(f"{file} is not JSON") from None
    if not isinstance(found, dict):
        raise click.ClickException(f"{file} must hold one request body, a JSON object")
    return found


def _print(answer: dict[str, Any]) -> None:
    cached = answer["cached_tokens"]
    click.echo(
        f"{answer['prompt_tokens']} tokens, {answer['common_tokens']} of them as before, so that "
        f"{answer['expected_tokens']} can come from the cache"
        + (f"; {cached} did" if cached is not None else "")
    )
    if not answer["causes"]:
        click.echo("Nothing was lost.")
        return
    for cause in answer["causes"]:
        sure = "" if cause["certainty"] == "confirmed" else " (suspected)"
        seconds = "" if cause["seconds_lost"] is None else f", {cause['seconds_lost']:.2f} s"
        click.echo(
            f"{cause['code']}{sure}: {cause['tokens_lost']} tokens{seconds} lost at "
            f"{cause['path'] or 'the template'}, token {cause['token']}\n    {cause['fix']}"
        )
    first = answer["causes"][0]
    if first["before"] or first["after"]:
        click.echo(f"before: {first['before']!r}\nafter:  {first['after']!r}")
