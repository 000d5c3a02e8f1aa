"""An OpenAI-compatible endpoint, asked as a stranger would: status, times, usage of an answer."""

from __future__ import annotations

import re
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import msgspec

from scopekv.errors import Unavailable
from scopekv.gateway.addresses import server_root
from scopekv.gateway.http import ClientPool, Headers

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
MESSAGES, RESPONSES = "/v1/messages", "/v1/responses"
ANSWER_BYTES_MAX = 16 << 20
_STREAMS = (b"data:", b"event:", b":", b"id:", b"retry:")
_NAME = re.compile(r"[a-z_]{1,40}")


@dataclass(frozen=True, slots=True, repr=False)
class Reply:
    """One answered request. Times are seconds on the monotonic clock of this process.

    `ttft_seconds`: from sending until a stream's first event with a piece of the answer, or the
    first byte of a whole one. `input_tokens`, `cached_tokens`: as the usage says; None where it
    says nothing. `retry_after_seconds`: as a refusal asks; 0 where it does not.
    """

    status: int
    sent_at: float
    ttft_seconds: float
    seconds: float
    input_tokens: int | None
    cached_tokens: int | None
    body: Any
    retry_after_seconds: float = 0.0

    @property
    def ok(self) -> bool:
        return self.status == 200

    @property
    def code(self) -> str:
        """The error's code or type; empty where there is none. Holds no text of the request."""
        error = self.body.get("error") if isinstance(self.body, dict) else None
        found = error if isinstance(error, dict) else {}
        return str(found.get("code") or found.get("type") or "")[:80]

    @property
    def parameter(self) -> str:
        """The name of a field that is refused, as OpenAI and FastAPI say it; else empty."""
        body = self.body if isinstance(self.body, dict) else {}
        error, detail = body.get("error"), body.get("detail")
        if isinstance(error, dict):
            found = error.get("param")
        else:
            first = detail[0] if isinstance(detail, list) and detail else None
            place = first.get("loc") if isinstance(first, dict) else None
            found = place[-1] if isinstance(place, list) and place else None
        return found if isinstance(found, str) and _NAME.fullmatch(found) else ""

    @property
    def models(self) -> list[str] | None:
        """Names in a list of models; None where the answer is none."""
        listed = self.body.get("data") if isinstance(self.body, dict) else None
        if not self.ok or not isinstance(listed, list):
            return None
        return [str(one["id"]) for one in listed if isinstance(one, dict) and one.get("id")]

    @property
    def why(self) -> str:
        """Status, code and refused field in a few words, and what to do about a redirection."""
        if 300 <= self.status < 400:
            return f"{self.status}, a redirection: give the address that it leads to"
        field = f"({self.parameter})" if self.parameter else ""
        return " ".join(filter(None, (str(self.status), self.code, field)))


class Endpoint:
    """Requests to one base URL, with or without `/v1` at its end. An async context manager.

    Raises `Unavailable` where no answer came; an answer with an error status is a `Reply`.
    """

    def __init__(
        self, url: str, *, timeout_seconds: float = 300.0, tls: ssl.SSLContext | None = None
    ) -> None:
        self.url = server_root(url)
        self._timeout = timeout_seconds
        self._pool = ClientPool(self.url, tls=tls)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._pool.close()

    async def models(self, key: str) -> list[str]:
        """Names of the models that `key` may use."""
        reply = await self.call("GET", "/v1/models", None, key=key)
        if reply.models is None:
            raise Unavailable(f"{self.url}/v1/models answered {reply.why}, and no list of models")
        return reply.models

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
            coming = _Coming()
            async for chunk in found.stream():
                coming.take(chunk)
                if len(coming.content) > ANSWER_BYTES_MAX:
                    raise Unavailable(f"an answer of {self.url} is over {ANSWER_BYTES_MAX} bytes")
        ended_at = time.perf_counter()
        told = _usage_bearer(coming.content) if coming.stream else _json(coming.content)
        inputs, cached = _usage(told)
        return Reply(
            status=found.status,
            sent_at=sent_at,
            ttft_seconds=(coming.first_at or ended_at) - sent_at,
            seconds=ended_at - sent_at,
            input_tokens=inputs,
            cached_tokens=cached,
            body=told,
            retry_after_seconds=_retry_after(found.headers),
        )


class _Coming:
    """An answer while it comes. `first_at`: when its first piece came, 0.0 before that.

    A stream may begin with comments, or with an event that says who answers and nothing yet: these
    come before the engine has done anything, and would hide what time tells.
    """

    def __init__(self) -> None:
        self.content = b""
        self.stream = False
        self.first_at = 0.0
        self._read = 0

    def take(self, chunk: bytes) -> None:
        if not self.content:
            self.stream = chunk.lstrip().startswith(_STREAMS)
        self.content += chunk
        if self.first_at:
            return
        at = time.perf_counter()
        if not self.stream:
            self.first_at = at
            return
        end = self.content.rfind(b"\n") + 1
        lines, self._read = self.content[self._read : end].splitlines(), max(end, self._read)
        if any(_speaks(_event(line)) for line in lines):
            self.first_at = at


def _event(line: bytes) -> dict[str, Any]:
    """The object of a stream's line; empty for every other line."""
    found = _json(line[5:]) if line.startswith(b"data:") else None
    return found if isinstance(found, dict) else {}


def _speaks(event: dict[str, Any]) -> bool:
    """Whether an event has a piece of the answer, or its end."""
    choices = event.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(first, dict):
        return str(event.get("type", "")).endswith("delta")
    delta = first.get("delta")
    said = {name: value for name, value in (delta or {}).items() if name != "role"}
    return bool(first.get("text") or first.get("finish_reason") or any(said.values()))


def _usage_bearer(content: bytes) -> Any:
    """Of a stream's events the one with an error, else the last with a usage, else the first."""
    found: Any = None
    for event in filter(None, map(_event, content.splitlines())):
        if event.get("error"):
            return event
        if found is None or event.get("usage"):
            found = event
    return found


def _retry_after(headers: Headers) -> float:
    told = next((value for name, value in headers if name.lower() == b"retry-after"), b"")
    return float(told) if told.isdigit() else 0.0


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
