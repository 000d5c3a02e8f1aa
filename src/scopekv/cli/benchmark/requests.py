"""One request at a time to an engine or a gateway, with the time to its first token."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import msgspec

from scopekv.errors import Unavailable
from scopekv.gateway.http.answer import UpstreamResponse
from scopekv.gateway.http.client import ClientPool
from scopekv.gateway.http.messages import Headers
from scopekv.gateway.usage import read_usage

HEAD_SECONDS_MAX = 600.0
_ERROR_BYTES_MAX = 1 << 16
_ERROR_CHARS_MAX = 300
_END = b"\n\n"


@dataclass(frozen=True, slots=True)
class Timed:
    """One streamed answer. `ttft_ms`: from the first byte sent to the first event received."""

    input_tokens: int
    cached_tokens: int
    output_tokens: int
    ttft_ms: float
    total_ms: float


@dataclass(frozen=True, slots=True, repr=False)
class Target:
    """A server that completes prompts."""

    pool: ClientPool
    model: str

    async def ask(
        self,
        prompt: str | Sequence[int],
        *,
        key: str,
        max_tokens: int,
        more: Mapping[str, Any] | None = None,
    ) -> Timed:
        """Send one greedy completion and read it to its end.

        Raises `Unavailable` where the server refuses, or does not count cached tokens.
        """
        body = {
            "model": self.model,
            "prompt": prompt,
            "max_tokens": max_tokens,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
            **(more or {}),
        }
        data = msgspec.json.encode(body)
        began = time.perf_counter()
        answer = await self.pool.request(
            "POST", "/v1/completions", _headers(key), data, timeout_seconds=HEAD_SECONDS_MAX
        )
        async with answer:
            await _check(answer)
            return await _read(answer, began)


@asynccontextmanager
async def target(url: str, model: str) -> AsyncIterator[Target]:
    """Connections to the server at `url`, closed at the end."""
    pool = ClientPool(url)
    try:
        yield Target(pool, model)
    finally:
        await pool.close()


async def counter(server: Target, name: str) -> float:
    """The sum of one of the engine's own counters (GET /metrics), over its labels."""
    answer = await server.pool.request("GET", "/metrics", [], b"", timeout_seconds=10)
    async with answer:
        lines = (await answer.read(64 << 20)).decode().splitlines()
    found = [line for line in lines if line.startswith((f"{name}{{", f"{name} "))]
    return sum(float(line.rpartition(" ")[2]) for line in found)


def _headers(key: str) -> Headers:
    return [
        (b"content-type", b"application/json"),
        (b"authorization", b"Bearer " + key.encode("ascii")),
    ]


async def _check(answer: UpstreamResponse) -> None:
    if answer.status != 200:
        words = (await answer.read(_ERROR_BYTES_MAX)).decode(errors="replace")
        raise Unavailable(f"the server answered {answer.status}: {words[:_ERROR_CHARS_MAX]}")


async def _read(answer: UpstreamResponse, began: float) -> Timed:
    first, held, usage = 0.0, b"", None
    async for chunk in answer.stream():
        first = first or time.perf_counter()
        *events, held = (held + chunk).split(_END)
        for event in events:
            if b'"usage":{' in event:
                usage = read_usage(event.removeprefix(b"data: ")) or usage
    ended = time.perf_counter()
    if usage is None or usage.cached is None:
        raise Unavailable(
            "the server does not say how many tokens were cached: start the engine with "
            "--enable-prompt-tokens-details"
        )
    return Timed(
        usage.prompt_tokens,
        usage.cached,
        usage.completion_tokens or 0,
        (first - began) * 1e3,
        (ended - began) * 1e3,
    )
