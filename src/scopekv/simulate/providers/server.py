"""Both providers on one loopback port: `/v1/messages`, `/v1/chat/completions`, `/v1/responses`."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Container, Iterator, Mapping
from typing import Any, Self

from scopekv.gateway.http import Failure, Headers, Reply, Request, Server, internal_failure
from scopekv.simulate.providers import anthropic, openai
from scopekv.simulate.providers.breakpoints import BreakpointCache
from scopekv.simulate.providers.words import Wrong

_JSON: Headers = [(b"content-type", b"application/json")]
_EVENTS: Headers = [(b"content-type", b"text/event-stream; charset=utf-8")]


class SimulatedProvider:
    """Use as an async context manager. `workspaces`: the workspace of each API key.

    `by_breakpoint`: models of OpenAI that cache as GPT-5.6 does. `held`: answers wait while it is
    set. `fails`: statuses that the next requests get instead of an answer. `breaks`: every
    connection is cut after a stream's second event. `interrupts`: what then ends a stream, instead
    of the rest of it. `seen`: every request that came, with its
    body. `clock`: what the caches' times are measured by, seconds.
    """

    def __init__(
        self,
        workspaces: Mapping[str, str],
        *,
        clock: Callable[[], float] = time.monotonic,
        minimum: Mapping[str, int] | None = None,
        by_breakpoint: Container[str] = (),
    ) -> None:
        self._workspaces = workspaces
        self._messages = anthropic.MessagesCache(clock, minimum or {})
        self._prefixes = openai.PrefixCache(clock)
        self._breakpoints, self._by_breakpoint = BreakpointCache(clock), by_breakpoint
        self.held = False
        self.fails: list[int] = []
        self.breaks = False
        self.interrupts = b""
        self.seen: list[tuple[Request, dict[str, Any]]] = []
        self._server: Server | None = None
        self._port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def last(self) -> dict[str, Any]:
        """The body of the last request."""
        return self.seen[-1][1]

    async def __aenter__(self) -> Self:
        self._server = Server(self._serve, error_map=_failure)
        self._port = await self._server.start("127.0.0.1", self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            await self._server.close(grace_seconds=0)

    async def _serve(self, request: Request, reply: Reply) -> None:
        body = json.loads(request.body)
        self.seen.append((request, body))
        named = request.header(b"x-api-key") or request.header(b"authorization") or b""
        while self.held:  # noqa: ASYNC110 - whoever holds it only sets a value
            await asyncio.sleep(0.01)
        key = named.removeprefix(b"Bearer ").decode("latin-1")
        if self.fails:
            _refuse(reply, self.fails.pop(0), f"made to fail; key {key}; 90 of 100 requests used")
        elif key not in self._workspaces:
            _refuse(reply, 401, f"invalid x-api-key {key}")
        else:
            await self._answer(request.path, self._workspaces[key], body, reply)

    async def _answer(self, path: str, workspace: str, body: dict[str, Any], reply: Reply) -> None:
        try:
            if path == "/v1/messages/count_tokens":
                count = {"input_tokens": self._messages.count(body)}
                reply.send(200, _JSON, json.dumps(count).encode())
                return
            whole, events = self._made(path, workspace, body)
        except Wrong as error:
            _refuse(reply, 400, str(error))
            return
        if not body.get("stream"):
            reply.send(200, _limits(_JSON), json.dumps(whole).encode())
            return
        await reply.start(200, _limits(_EVENTS))
        for number, event in enumerate(events):
            if self.breaks and number == 2 and self._server is not None:
                await asyncio.sleep(0.05)  # what was written is on its way
                self._server.abort()
                return
            if self.interrupts and number == 2:
                await reply.write(self.interrupts)
                break
            await reply.write(event)
        await reply.finish()

    def _made(
        self, path: str, workspace: str, body: dict[str, Any]
    ) -> tuple[dict[str, Any], Iterator[bytes]]:
        if path == "/v1/messages":
            message = anthropic.answer(body, self._messages.use(workspace, body))
            return message, anthropic.events(message)
        if body["model"] in self._by_breakpoint:  # chats, whole: what tests ask
            whole = openai.chat_answer(body, *self._breakpoints.use(workspace, body))
            return whole, iter(())
        prompt, read = self._prefixes.use(workspace, body)
        if path == "/v1/responses":
            whole = openai.response_answer(body, prompt, read)
            return whole, openai.response_events(body, prompt, read)
        if path == "/v1/chat/completions":
            whole = openai.chat_answer(body, prompt, read)
            return whole, openai.chat_events(body, prompt, read)
        raise Wrong(f"no such route {path}")


def _limits(headers: Headers) -> Headers:
    """What counts all of a workspace's customers, as providers send it."""
    return [
        *headers,
        (b"request-id", b"req_provider"),
        (b"x-ratelimit-remaining-requests", b"90"),
        (b"anthropic-ratelimit-input-tokens-remaining", b"9000"),
        (b"openai-organization", b"org-of-the-operator"),
    ]


def _refuse(reply: Reply, status: int, message: str) -> None:
    error = {"type": "invalid_request_error", "message": message, "code": None, "param": None}
    headers = [*_limits(_JSON), (b"retry-after", b"7")]
    reply.send(status, headers, json.dumps({"type": "error", "error": error}).encode())


def _failure(error: Exception) -> Failure:
    return internal_failure(error)
