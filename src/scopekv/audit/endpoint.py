"""An OpenAI-compatible endpoint, asked as a stranger would: status, times, usage of an answer."""

from __future__ import annotations

import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import msgspec

from scopekv.errors import Unavailable
from scopekv.gateway.http import ClientPool, Headers

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
MESSAGES, RESPONSES = "/v1/messages", "/v1/responses"
ANSWER_BYTES_MAX = 16 << 20


@dataclass(frozen=True, slots=True, repr=False)
class Reply:
    """One answered request. Times are seconds on the monotonic clock of this process.

    `ttft_seconds`: from sending until the first event of a stream, or the head of a whole answer.
    `input_tokens`, `cached_tokens`: as the usage says; None where it says nothing.
    """

    status: int
    sent_at: float
    ttft_seconds: float
    seconds: float
    input_tokens: int | None
    cached_tokens: int | None
    body: Any

    @property
    def ok(self) -> bool:
        return self.status == 200

    @property
    def code(self) -> str:
        """The error's code or type; empty where there is none. Holds no text of the request."""
        error = self.body.get("error") if isinstance(self.body, dict) else None
        found = error if isinstance(error, dict) else {}
        return str(found.get("code") or found.get("type") or "")[:80]


class Endpoint:
    """Requests to one base URL, with or without `/v1` at its end. An async context manager.

    Raises `Unavailable` where no answer came; an answer with an error status is a `Reply`.
    """

    def __init__(
        self, url: str, *, timeout_seconds: float = 300.0, tls: ssl.SSLContext | None = None
    ) -> None:
        self.url = url.rstrip("/").removesuffix("/v1")
        self._timeout = timeout_seconds
        self._pool = ClientPool(self.url, tls=tls)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._pool.close()

    async def models(self, key: str) -> list[str]:
        """Names of the models that `key` may use."""
        reply = await self.call("GET", "/v1/models", None, key=key)
        if not reply.ok:
            raise Unavailable(f"{self.url}/v1/models answered {reply.status} {reply.code}")
        return [str(one["id"]) for one in reply.body["data"]]

    async def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | bytes | None,
        *,
        key: str | None,
        headers: Headers | None = None,
    ) -> Reply:
        """Send one request and read the whole answer. `key` None: no Authorization header."""
        data = body if isinstance(body, bytes) else msgspec.json.encode(body) if body else b""
        own: Headers = [(b"content-type", b"application/json"), *(headers or [])]
        if key is not None:
            own = [*own, (b"authorization", b"Bearer " + key.encode())]
        sent_at = time.perf_counter()
        found = await self._pool.request(
            method, path, own, data, timeout_seconds=self._timeout, safe=False
        )
        async with found:
            content = b""
            first_at = 0.0
            async for chunk in found.stream():
                first_at = first_at or time.perf_counter()
                content += chunk
                if len(content) > ANSWER_BYTES_MAX:
                    raise Unavailable(f"an answer of {self.url} is over {ANSWER_BYTES_MAX} bytes")
        ended_at = time.perf_counter()
        told = _usage_bearer(content)
        inputs, cached = _usage(told)
        return Reply(
            status=found.status,
            sent_at=sent_at,
            ttft_seconds=(first_at or ended_at) - sent_at,
            seconds=ended_at - sent_at,
            input_tokens=inputs,
            cached_tokens=cached,
            body=told,
        )


def _usage_bearer(content: bytes) -> Any:
    """The JSON of a whole answer; of a stream, its last event that is an object with a usage."""
    if not content.startswith((b"data:", b"event:", b":")):
        return _json(content)
    found: Any = None
    for line in content.splitlines():
        if line.startswith(b"data: {"):
            event = _json(line[6:])
            if isinstance(event, dict) and (found is None or event.get("usage")):
                found = event
    return found


def _json(content: bytes) -> Any:
    try:
        return msgspec.json.decode(content)
    except msgspec.DecodeError:
        return None


def _usage(body: Any) -> tuple[int | None, int | None]:
    """Prompt tokens and cached tokens, where an answer of OpenAI's or Anthropic's form says them.

    Anthropic's input tokens are those neither read from the cache nor written to it.
    """
    usage = body.get("usage") if isinstance(body, dict) else None
    if not isinstance(usage, dict):
        return None, None
    details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details")
    read = usage.get("cache_read_input_tokens")
    cached = details.get("cached_tokens") if isinstance(details, dict) else read
    inputs = _count(usage.get("prompt_tokens", usage.get("input_tokens")))
    if inputs is not None:
        written = usage.get("cache_creation_input_tokens")
        inputs += sum(_count(apart) or 0 for apart in (read, written))
    return inputs, _count(cached)


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
