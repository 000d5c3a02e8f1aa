"""A plain client of a gateway or an engine: sends what it is told, however wrong, and reads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from scopekv.gateway.http import ClientPool, Headers

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
ANSWER_BYTES_MAX = 64 << 20


@dataclass(frozen=True, slots=True, repr=False)
class Answer:
    """One whole answer."""

    status: int
    headers: Headers
    content: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.content)

    @property
    def error(self) -> dict[str, Any]:
        """The `error` member, of which every field must be there."""
        found: dict[str, Any] = self.json["error"]
        missing = {"message", "type", "param", "code"} - found.keys()
        if missing:
            raise AssertionError(f"an error without {', '.join(sorted(missing))}")
        return found

    @property
    def cached(self) -> int:
        """`usage.prompt_tokens_details.cached_tokens` of an answer that must be a 200."""
        if self.status != 200:
            raise AssertionError(f"status {self.status}: {self.content[:300]!r}")
        return int(self.json["usage"]["prompt_tokens_details"]["cached_tokens"])

    @property
    def text(self) -> str:
        """What the first choice says."""
        choice = self.json["choices"][0]
        return str(choice["message"]["content"] if "message" in choice else choice["text"])

    @property
    def events(self) -> list[Any]:
        """The JSON of each `data:` event of a stream, without the closing `[DONE]`."""
        lines = [line for line in self.content.split(b"\n\n") if line.startswith(b"data: {")]
        return [msgspec.json.decode(line[6:]) for line in lines]


class PlainClient:
    """Requests to one base URL as whoever holds `key`. Keeps no state but connections."""

    def __init__(self, url: str, model: str) -> None:
        self.url, self.model = url, model
        self._pool = ClientPool(url)

    async def send(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        key: str | None,
        headers: Headers | None = None,
    ) -> Answer:
        """Send `body` as JSON, or as it is where it is bytes. No key: no Authorization header."""
        data = body if isinstance(body, bytes) else msgspec.json.encode(body) if body else b""
        own = [(b"content-type", b"application/json"), *(headers or [])]
        if key is not None:
            own.append((b"authorization", b"Bearer " + key.encode()))
        found = await self._pool.request(method, path, own, data, timeout_seconds=120)
        async with found:
            return Answer(found.status, found.headers, await found.read(ANSWER_BYTES_MAX))

    async def chat(
        self, key: str, *contents: str, headers: Headers | None = None, **fields: Any
    ) -> Answer:
        """A chat of one system message, if two contents are given, and one user message."""
        roles = ("user",) if len(contents) == 1 else ("system", "user", "assistant", "user")
        messages = [
            {"role": role, "content": text} for role, text in zip(roles, contents, strict=False)
        ]
        body = {"model": self.model, "messages": messages, "max_tokens": 4, "temperature": 0}
        return await self.send("POST", CHAT, body | fields, key=key, headers=headers)

    async def complete(
        self, key: str, prompt: object, headers: Headers | None = None, **fields: Any
    ) -> Answer:
        """A plain completion."""
        body = {"model": self.model, "prompt": prompt, "max_tokens": 4, "temperature": 0}
        return await self.send("POST", COMPLETIONS, body | fields, key=key, headers=headers)

    async def close(self) -> None:
        await self._pool.close()
