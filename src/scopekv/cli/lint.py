"""`scopekv lint`: what in a log of requests keeps the cache from being used, before it is run."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.progress import track

from scopekv import __version__
from scopekv.cli.options import data_dir_option, default_data_dir
from scopekv.core.explaining import Certainty, Diagnosis, MissCause, ReadPrompt, diagnose
from scopekv.core.policy import RoleRules
from scopekv.core.scopes import Narrowing, Principal
from scopekv.engines.model import ensure_model
from scopekv.errors import Misuse, ScopeKVError
from scopekv.gateway.apis import APIS
from scopekv.gateway.apis.chat import CHAT_API, COMPLETIONS_API
from scopekv.gateway.apis.responses import RESPONSES_API
from scopekv.gateway.documents import DocumentIndex
from scopekv.gateway.explaining import read_prompt, shown
from scopekv.gateway.explaining.media import without_media
from scopekv.gateway.model_text import read_model_text
from scopekv.gateway.prompts import Caller, ModelText
from scopekv.simulate.model import SimulatedModel

WINDOW = 16
YOU = Caller(Principal("you", "you", "you", "you"), Narrowing(), RoleRules(), DocumentIndex(()))
_QUIET = frozenset({MissCause.COLD, MissCause.BELOW_MINIMUM})


@dataclass(frozen=True, slots=True, repr=False)
class _Found:
    """One request of a file: where it stands, what it is compared with, what was found.

    `media`: parts that are no text, each read as a word.
    """

    file: str
    line: int
    against: int | None
    diagnosis: Diagnosis
    media: int


@click.command()
@click.argument(
    "files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.option(
    "--model-dir",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A Hugging Face folder with tokenizer and chat template. [default: the embedded model]",
)
@click.option("--block-size", default=32, show_default=True, type=click.IntRange(1, 4096))
@click.option(
    "--window",
    default=WINDOW,
    show_default=True,
    type=click.IntRange(1, 1000),
    help="With how many requests before it each one is compared.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
@click.option("--sarif", is_flag=True, help="Print SARIF 2.1.0, for code review tools.")
@click.option(
    "--fail-on",
    type=click.Choice(["confirmed", "suspected", "never"]),
    default="never",
    show_default=True,
    help="Exit with 1 where such a cause was found.",
)
@data_dir_option
def lint(
    files: tuple[Path, ...],
    model_dir: Path | None,
    block_size: int,
    window: int,
    as_json: bool,
    sarif: bool,
    fail_on: str,
    data_dir: Path | None,
) -> None:
    """Find what in prompts keeps the cache from being used, without an engine.

    \b
    FILE holds requests in the order in which they are sent: JSON lines, or one JSON list. A request
    is a body of /v1/chat/completions, /v1/completions, /v1/responses or /v1/messages, or
    {"api": "/v1/messages", "body": {...}}.

    \b
    scopekv lint requests.jsonl
    scopekv lint --sarif --fail-on confirmed tests/prompts/*.jsonl > prompts.sarif

    What can come from the cache is what an engine reads that has computed the requests before,
    exact for this template, tokenizer and block size, one caller, an organisation's usual rules
    and no published documents; blocks of answers come on top. "user" narrows as it does when it is
    sent. Images and other parts that are no text are compared, as a few tokens each: how many they
    are only an engine knows.
    """
    console = Console(stderr=True)
    try:
        folder = model_dir or ensure_model(
            (data_dir or default_data_dir()).expanduser().absolute(), console=console
        )
        text = read_model_text(SimulatedModel.load(folder).describe())
        found = [one for file in files for one in _linted(file, text, block_size, window, console)]
    except ScopeKVError as error:
        raise click.ClickException(str(error)) from error
    if sarif:
        click.echo(json.dumps(_sarif(found), indent=1))
    elif as_json:
        click.echo(json.dumps([_row(one) for one in found]))
    else:
        _print(found)
    wanted = {"confirmed": {Certainty.CONFIRMED}, "suspected": set(Certainty)}.get(fail_on, set())
    if any(cause.certainty in wanted for one in found for cause in _causes(one)):
        raise SystemExit(1)


def _linted(
    file: Path, text: ModelText, block_size: int, window: int, console: Console
) -> Iterator[_Found]:
    """Compare each request with those before it; that with most in common counts."""
    before: list[tuple[int, ReadPrompt]] = []
    requests = list(_requests(file))
    for line, path, body in track(
        requests,
        f"Reading {file.name}",
        console=console,
        disable=len(requests) < 50,
        transient=True,
    ):
        try:
            api = APIS[path]
            readable, media = without_media(api, api.check(body))
            later = read_prompt(api, readable, text, YOU)
        except Misuse as error:
            raise Misuse(f"{file}:{line}: {error}") from error
        best: tuple[int | None, Diagnosis] | None = None
        for number, earlier in reversed(before[-window:]):
            diagnosis = diagnose(earlier, later, block_size)
            if best is None or diagnosis.common_tokens > best[1].common_tokens:
                best = (number, diagnosis)
        against, diagnosis = best or (None, diagnose(None, later, block_size))
        yield _Found(str(file), line, against, diagnosis, media)
        before.append((line, later))


def _requests(file: Path) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Line, API path and body of each request. Raises `Misuse` naming file and line."""
    content = file.read_bytes().removeprefix(codecs.BOM_UTF8)
    if content.lstrip().startswith(b"["):
        given = [(number + 1, one) for number, one in enumerate(_json(content, file, 1))]
    else:
        lines = enumerate(content.split(b"\n"), 1)
        given = [(number, _json(line, file, number)) for number, line in lines if line.strip()]
    if not given:
        raise Misuse(f"{file}: no request is in it")
    for number, one in given:
        if not isinstance(one, dict):
            raise Misuse(f"{file}:{number}: a request must be a JSON object")
        inner = one.get("body")
        body: dict[str, Any] = inner if isinstance(inner, dict) else one
        batched = one.get("url") if inner is body else None  # OpenAI's batch files
        path = one.get("api") or batched or _api_of(body)
        if not isinstance(path, str) or path not in APIS:
            raise Misuse(f"{file}:{number}: no such API; it takes {', '.join(APIS)}")
        yield number, path, {"model": "", **body}


def _json(content: bytes, file: Path, line: int) -> Any:
    """As the gateway reads it: UTF-8, and no half of a surrogate pair."""
    try:
        return msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        what = "not JSON in UTF-8; write one request a line, or one list"
        raise Misuse(f"{file}:{line}: {what}") from None


def _api_of(body: dict[str, Any]) -> str:
    if "input" in body:
        return RESPONSES_API.path
    return COMPLETIONS_API.path if "prompt" in body else CHAT_API.path


def _causes(one: _Found) -> Sequence[Any]:
    return [cause for cause in one.diagnosis.causes if cause.code not in _QUIET]


def _row(one: _Found) -> dict[str, Any]:
    place: dict[str, Any] = {"file": one.file, "line": one.line, "compared_with_line": one.against}
    place["media"] = one.media
    return place | shown(one.diagnosis, cached=None, prefill=None)


def _print(found: Sequence[_Found]) -> None:
    """As compilers do, one paragraph a request: no column is too narrow for a path or advice."""
    for one in found:
        expected, tokens = one.diagnosis.expected_tokens, one.diagnosis.prompt_tokens
        media = f"; not text, a few tokens each: {one.media} parts" if one.media else ""
        counts = f"{expected} of {tokens} tokens can come from the cache"
        click.echo(f"{one.file}:{one.line}: {counts}{media}")
        for cause in _causes(one):
            what = cause.code.value + ("" if cause.certainty is Certainty.CONFIRMED else " ?")
            where = f"{cause.path or 'template'}, token {cause.token}"
            click.echo(f"    {what}: {cause.tokens_lost} tokens lost at {where}\n    {cause.fix}")


def _sarif(found: Sequence[_Found]) -> dict[str, Any]:
    """SARIF 2.1.0 (OASIS): one result a cause, at the request's line."""
    results = []
    for one in found:
        for cause in _causes(one):
            confirmed = cause.certainty is Certainty.CONFIRMED
            place = {
                "artifactLocation": {"uri": one.file},
                "region": {"startLine": one.line},
            }
            words = f"{cause.tokens_lost} tokens lost from token {cause.token} on: {cause.fix}"
            results.append(
                {
                    "ruleId": cause.code.value,
                    "level": "warning" if confirmed else "note",
                    "message": {"text": words},
                    "locations": [{"physicalLocation": place}],
                }
            )
    rules = [{"id": cause.value} for cause in MissCause]
    driver = {"name": "scopekv lint", "version": __version__, "rules": rules}
    return {
        "version": "2.1.0",
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }
