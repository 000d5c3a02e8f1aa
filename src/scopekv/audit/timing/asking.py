"""Asking an endpoint as one party or another, and counting what went wrong."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from scopekv.audit.endpoint import CHAT, COMPLETIONS, Endpoint, Reply
from scopekv.audit.timing.prompts import Letters
from scopekv.errors import ConfigError, Unavailable
from scopekv.gateway.http import Headers

ERRORS_IN_A_ROW_MAX = 5
WARM_UP_REQUESTS = 3
FIRST_PAUSE_SECONDS = 0.1  # doubles with every loss in a row
LIMITED_MAX = 12  # times that one request is sent again because there were too many
PAUSE_SECONDS_MAX = 60.0
_LOAD_TOKENS = 16
_FATAL = frozenset({*range(300, 400), 400, 401, 403, 404, 405, 413, 422})
_LIMIT, _NEW_LIMIT = "max_tokens", "max_completion_tokens"  # newer models of OpenAI's take this
_CAN_GO = {
    "stream": {"stream", "stream_options"},
    "stream_options": {"stream_options"},
    "temperature": {"temperature"},
}
_TOO_MANY = 429
_DETAIL: Headers = [(b"x-scopekv-detail", b"1")]


@dataclass(frozen=True, slots=True, repr=False)
class Party:
    """Who asks. `name` is for reports; `salt` and `user` go into the body where they are set."""

    name: str
    key: str
    salt: str = ""
    user: str = ""

    @property
    def fields(self) -> dict[str, str]:
        named = {"cache_salt": self.salt, "user": self.user}
        return {name: value for name, value in named.items() if value}

    def same_as(self, other: Party) -> bool:
        """Whether the endpoint cannot tell the two apart."""
        return (self.key, self.salt, self.user) == (other.key, other.salt, other.user)


class Lost(Unavailable):
    """A request got no usable answer. Its sample is thrown away and counted as an error."""


@dataclass(slots=True, repr=False)
class Asker:
    """One model of one endpoint. Times are until the first piece of a one-token stream.

    A lost request is not sent again: it may have filled the cache that it was to look into. The
    sample is begun anew with fresh prompts, after a pause that grows. One that is refused for a
    field, or because there are too many, ran nowhere: it is sent again without, or later.
    """

    endpoint: Endpoint
    model: str
    chat: bool
    letters: Letters
    requests: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    _in_a_row: int = 0
    _limit: str = _LIMIT
    _left_out: set[str] = field(default_factory=set)

    async def ask(
        self, party: Party, prompt: str, *, max_tokens: int = 1, detail: bool = False
    ) -> Reply:
        """Send one prompt. Raises `Lost`, `ConfigError` for a refusal that will not pass, and
        `Unavailable` after `ERRORS_IN_A_ROW_MAX` losses."""
        self.requests += 1
        path = CHAT if self.chat else COMPLETIONS
        reply = await self._accepted(party, path, prompt, max_tokens, detail)
        told = reply.body if isinstance(reply.body, dict) else {}
        if reply.ok and told.get("choices") is not None and not told.get("error"):
            self._in_a_row = 0
            return reply
        if reply.status in _FATAL:
            raise ConfigError(
                f"{self.endpoint.url}{path} answered the {party.name} {reply.why}: "
                "see that the URL, the model and this party's key are right"
            )
        kind = f"{reply.status} without an answer" if reply.ok else str(reply.status)
        await self._lose(kind)
        raise Lost(f"status {kind}")

    async def _accepted(
        self, party: Party, path: str, prompt: str, max_tokens: int, detail: bool
    ) -> Reply:
        """Send until it is not refused for what a later or smaller request would not be."""
        headers = _DETAIL if detail else None
        waits = 0
        while True:
            body = self.body(prompt, max_tokens, stream=not detail) | party.fields
            try:
                reply = await self.endpoint.call("POST", path, body, key=party.key, headers=headers)
            except Unavailable:
                await self._lose("no_answer")
                raise Lost("no answer") from None
            if reply.status in (400, 422) and self._goes_without(reply.parameter):
                continue
            if reply.status != _TOO_MANY:
                return reply
            self.errors[str(_TOO_MANY)] += 1
            waits += 1
            if waits > LIMITED_MAX:
                raise Unavailable(
                    f"{self.endpoint.url} answered {reply.why} to {waits} tries of one request: "
                    "use keys with a higher rate limit, or fewer --samples"
                )
            pause = reply.retry_after_seconds or FIRST_PAUSE_SECONDS * 2**waits
            await asyncio.sleep(min(pause, PAUSE_SECONDS_MAX))

    def _goes_without(self, name: str) -> bool:
        """Whether a refused field has another name, or can be left out, from now on."""
        if name == self._limit == _LIMIT:
            self._limit = _NEW_LIMIT
            return True
        new = name in _CAN_GO and name not in self._left_out
        self._left_out |= _CAN_GO.get(name, set())
        return new

    async def _lose(self, kind: str) -> None:
        self.errors[kind] += 1
        self._in_a_row += 1
        if self._in_a_row >= ERRORS_IN_A_ROW_MAX:
            raise Unavailable(
                f"{self.endpoint.url} failed {self._in_a_row} requests in a row, last: {kind}"
            )
        await asyncio.sleep(FIRST_PAUSE_SECONDS * 2**self._in_a_row)

    async def warm_up(self, parties: Sequence[Party]) -> None:
        """Send a few prompts as each party: connections, keys, and first uses of everything."""
        for party in parties:
            for _ in range(WARM_UP_REQUESTS):
                try:
                    await self.ask(party, self.letters.fresh())
                except Lost:
                    continue

    def body(self, prompt: str, max_tokens: int, *, stream: bool) -> dict[str, Any]:
        """The request's body, without what is a party's own."""
        body: dict[str, Any] = {"model": self.model, self._limit: max_tokens, "temperature": 0}
        if stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        body = {name: value for name, value in body.items() if name not in self._left_out}
        if self.chat:
            return body | {"messages": [{"role": "user", "content": prompt}]}
        return body | {"prompt": prompt}


class Load:
    """Keeps `count` requests of a party under way while the block runs. May be 0."""

    def __init__(self, asker: Asker, party: Party, count: int) -> None:
        self._asker, self._party, self._count = asker, party, count
        self._tasks: list[asyncio.Task[None]] = []
        self.answered = self.lost = 0

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._go_on()) for _ in range(self._count)]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _go_on(self) -> None:
        """Errors of the load are its own: they are counted, and never end the audit."""
        asker, letters = self._asker, self._asker.letters
        while True:
            body = asker.body(letters.fresh(), _LOAD_TOKENS, stream=True) | self._party.fields
            path = CHAT if asker.chat else COMPLETIONS
            try:
                reply = await asker.endpoint.call("POST", path, body, key=self._party.key)
            except Unavailable:
                reply = None
            if reply is not None and reply.ok:
                self.answered += 1
            else:
                self.lost += 1
                await asyncio.sleep(0.5)
