"""Endpoints of others: what their answers look like, and what is refused, limited or no answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from scopekv.audit import endpoint as module
from scopekv.audit.endpoint import Endpoint
from scopekv.audit.timing import asking
from scopekv.audit.timing.asking import LIMITED_MAX, Asker, Lost, Party
from scopekv.audit.timing.prompts import Letters
from scopekv.errors import ConfigError, Unavailable

PARTY = Party("victim", "a-key")
ROLE = b'data: {"choices":[{"delta":{"role":"assistant","content":""}}]}\n\n'
PIECE = b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'
USAGE = (
    b'data: {"choices":[],"usage":{"prompt_tokens":9,"prompt_tokens_details":{"cached_tokens":4}}}'
)
Answer = tuple[int, bytes]
OK = (200, PIECE + USAGE + b"\n\ndata: [DONE]\n\n")


def refusal(status: int, parameter: str) -> Answer:
    error = {"code": "unsupported_parameter", "param": parameter, "message": "a secret"}
    return status, json.dumps({"error": error}).encode()


@asynccontextmanager
async def stranger(answers: Sequence[Answer]) -> AsyncIterator[tuple[Asker, list[dict[str, Any]]]]:
    """Gives these answers, the last one again and again. The connection is closed after each."""
    bodies: list[dict[str, Any]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0] or 0)
        bodies.append(json.loads(await reader.readexactly(length) or b"{}"))
        status, content = answers[min(len(bodies), len(answers)) - 1]
        writer.write(b"HTTP/1.1 %d X\r\nRetry-After: 0\r\n\r\n" % status + content)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, Endpoint(f"http://127.0.0.1:{port}/other/v1") as endpoint:
        yield Asker(endpoint, "m", True, Letters("strangers", 40)), bodies


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "FIRST_PAUSE_SECONDS", 0.0)


@pytest.mark.parametrize(
    "before",
    [[], [b": PROCESSING\n\n"], [ROLE], [b"retry: 10\n\n", ROLE], [b"event: x\r\n"], [PIECE[:9]]],
)
def test_time_runs_until_a_piece_of_the_answer_is_there(before: list[bytes]) -> None:
    coming = module._Coming()
    for chunk in before:
        coming.take(chunk)
        assert not coming.first_at
    coming.take(PIECE[9:] if before == [PIECE[:9]] else PIECE)
    assert coming.first_at
    assert coming.stream


@pytest.mark.parametrize(
    "piece",
    [
        PIECE,
        PIECE.replace(b"data: ", b"data:").replace(b"\n", b"\r\n"),
        b'data: {"choices":[{"text":"a"}]}\n',
        b'data: {"choices":[{"delta":{"reasoning_content":"a"}}]}\n',
        b'data: {"choices":[{"delta":{},"finish_reason":"length"}]}\n',
        b'data: {"type":"content_block_delta","delta":{"text":"a"}}\n',
        b'{"choices": [',
    ],
)
def test_pieces_of_many_forms(piece: bytes) -> None:
    coming = module._Coming()
    coming.take(piece)
    assert coming.first_at


async def test_a_stream_is_read_whoever_wrote_it() -> None:
    content = b": hello\r\n\r\n" + (ROLE + PIECE).replace(b"\n", b"\r\n").replace(b": {", b":{")
    async with stranger([(200, content + USAGE)]) as (asker, _):
        reply = await asker.ask(PARTY, "x")
    assert (reply.input_tokens, reply.cached_tokens) == (9, 4)


@pytest.mark.parametrize(
    "content",
    [
        b"<html>hello</html>",
        b"",
        b"[]",
        b'{"error":{"code":"overloaded"}}',
        ROLE + b'data: {"error":{"code":"boom"}}\n\n',
    ],
)
async def test_what_is_no_answer_is_no_sample(content: bytes) -> None:
    async with stranger([(200, content)]) as (asker, _):
        with pytest.raises(Lost):
            await asker.ask(PARTY, "x")
    assert asker.errors == {"200 without an answer": 1}


async def test_a_request_that_was_one_too_many_is_sent_again() -> None:
    async with stranger([(429, b""), (429, b"{}"), OK]) as (asker, bodies):
        assert (await asker.ask(PARTY, "x")).cached_tokens == 4
    assert (len(bodies), asker.errors) == (3, {"429": 2})
    assert bodies[0] == bodies[2]


async def test_an_endpoint_that_only_refuses_is_given_up() -> None:
    async with stranger([(429, b'{"error":{"code":"quota"}}')]) as (asker, bodies):
        with pytest.raises(Unavailable, match="429 quota to 13 tries") as raised:
            await asker.ask(PARTY, "x")
        assert not isinstance(raised.value, Lost)
    assert len(bodies) == LIMITED_MAX + 1


async def test_refused_fields_are_named_otherwise_or_left_out() -> None:
    names = ["max_tokens", "stream_options", "temperature", "stream"]
    async with stranger([*(refusal(400, name) for name in names), OK]) as (asker, bodies):
        await asker.ask(PARTY, "x")
        await asker.ask(PARTY, "y")
    assert set(bodies[0]) == {"model", "messages", *names}
    assert set(bodies[4]) == set(bodies[5]) == {"model", "messages", "max_completion_tokens"}
    detail = json.dumps({"detail": [{"loc": ["body", "stream_options"], "msg": "a secret"}]})
    async with stranger([(422, detail.encode()), OK]) as (asker, bodies):
        await asker.ask(PARTY, "x")
    assert "stream_options" not in bodies[1]


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (refusal(400, "model"), r"400 unsupported_parameter \(model\)"),
        (refusal(400, "a secret"), "400 unsupported_parameter: see"),
        ((307, b""), "a redirection: give the address that it leads to"),
        ((404, b"<html>"), "answered the victim 404: see that the URL"),
    ],
)
async def test_what_will_not_pass_ends_it_with_the_next_move(
    answer: Answer, complaint: str
) -> None:
    async with stranger([answer]) as (asker, _):
        with pytest.raises(ConfigError, match=complaint) as raised:
            await asker.ask(PARTY, "x")
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("content", [b"<html>", b"[]", b'{"data":[{"name":"x"}]}', b"{}"])
async def test_lists_of_models_that_are_none(content: bytes) -> None:
    async with stranger([(200, content)]) as (asker, _):
        reply = await asker.endpoint.call("GET", "/v1/models", None, key="k")
    assert not reply.models
