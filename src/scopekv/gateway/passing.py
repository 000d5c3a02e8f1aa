"""What of a client's headers reaches an engine, and of an engine's answer a client (R11)."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from scopekv.core.backlogs import HEADER
from scopekv.core.values import light_value
from scopekv.errors import Misuse, NotFound, Unavailable
from scopekv.gateway.apis import Api
from scopekv.gateway.apis.api import Head
from scopekv.gateway.http.answer import TooLong, UpstreamResponse
from scopekv.gateway.http.messages import Failure, Headers, Request, end_to_end
from scopekv.gateway.http.reply import Reply
from scopekv.gateway.metrics import Metrics
from scopekv.gateway.prompts import Prompt
from scopekv.gateway.routing import Route
from scopekv.gateway.usage import (
    Kinds,
    Shares,
    Usage,
    by_kind,
    read_usage,
    take_report,
    with_detail,
)

REQUEST_ID = b"x-scopekv-request"
ERROR_BYTES_MAX = 1 << 16
ANSWER_BYTES_MAX = 64 << 20
RETRY_AFTER = b"1"  # seconds, where an engine that is too busy does not say
_JSON: Headers = [(b"content-type", b"application/json")]
_FAILED = "the engine failed at this request: retry"

# Credentials, what narrows, and what would pick a request's name, rank or encoding in the engine.
_STRIPPED_HEADERS = frozenset(
    (
        *(b"authorization", b"cookie", b"x-api-key", b"x-goog-api-key", b"api-key"),
        *(b"host", b"expect"),
        *(b"accept-encoding", b"content-type", b"content-encoding", b"x-request-id"),
        *(b"x-session-id", b"x-correlation-id", b"x-data-parallel-rank", b"x-vllm-priority"),
        *(b"openai-organization", b"openai-project"),
    )
)
# What an engine says of itself; loads are all tenants' (L10).
_HIDDEN_HEADERS = frozenset((b"server", b"date", b"endpoint-load-metrics", HEADER))
# "endpoint-load-metrics-format" makes vLLM tell its load, which is all tenants' (L10).
_STRIPPED_PREFIXES = (b"x-scopekv-", b"x-vllm-", b"endpoint-load-metrics")
CLAIMS = (b"openai-organization", b"x-scopekv-org")  # headers that could name another tenant


@light_value()
class Told:
    """What an answer said of the cache, and of what was fetched from tiers for it.

    `kinds`: prompt tokens by scope kind, and how many of them came from the cache; with `usage`.
    `first_at`: when its first bytes were here, by `perf_counter`; None for one that came whole.
    """

    usage: Usage | None
    kinds: Kinds | None
    report: Mapping[str, Any] | None
    first_at: float | None = None

    @property
    def whole(self) -> bool:
        """Not streamed: only whole answers report what was fetched."""
        return self.first_at is None


@light_value(repr=False)
class Passing:
    """A good answer on its way to the client, and what is read of it in passing."""

    api: Api
    body: dict[str, Any]
    detail: bool  # the client asked what was cached of each segment
    prompt: Prompt
    route: Route
    metrics: Metrics
    request_id: str
    org: str
    came: float  # when the request was here whole, on the clock of `time.perf_counter`
    compared: Callable[[], Awaitable[Any]] | None  # with an earlier request, if it asked for that

    async def whole(self, answer: UpstreamResponse, reply: Reply) -> Told:
        try:
            content, report = take_report(await answer.read(ANSWER_BYTES_MAX))
        except TooLong:  # by what was asked for: the engine is well
            raise Misuse(
                f"the answer is over the limit of {ANSWER_BYTES_MAX} bytes: ask for it as a "
                "stream, or for less (n, max_tokens, logprobs)"
            ) from None
        usage = read_usage(content)
        self.route.answered(usage)
        kinds = self._count(usage)
        if usage is not None and self.detail:
            content = with_detail(content, usage, Shares(self.prompt.segments), report)
        self.metrics.answered(self.api.path, 200)
        content = self.api.answer(self.body, content, await self._head())
        reply.send(200, self._headers(answer), content)
        return Told(usage, kinds, report)

    async def stream(self, answer: UpstreamResponse, reply: Reply) -> Told:
        """Pass a stream on. Its head waits for the first event: until then all can still change."""
        shares = Shares(self.prompt.segments) if self.detail else None
        tap = self.api.tap(self.body, shares, await self._head())
        # What has come goes on in one write: each wakes the client, and costs more than parsing.
        last, first_at = b"", time.perf_counter()
        async for chunk in answer.stream():
            data = tap.feed(chunk)
            if not reply.started:
                self.route.first_token()
                first_at = time.perf_counter()
                if data:
                    self.metrics.ttft_seconds.observe(time.perf_counter() - self.came)
                    await reply.start(200, self._headers(answer), data)
            elif answer.ended:
                last = data
            elif data:
                await reply.write(data)
        if not reply.started:
            await reply.start(200, self._headers(answer))
        await reply.finish(last + tap.rest())
        self.route.answered(tap.usage)
        self.metrics.answered(self.api.path, 200)
        return Told(tap.usage, self._count(tap.usage), None, first_at)

    async def _head(self) -> Head:
        """What the gateway itself writes into the answer."""
        head = self.api.head(self.request_id)
        return head if self.compared is None else {**head, "diagnostics": await self.compared()}

    def _count(self, usage: Usage | None) -> Kinds | None:
        if usage is None:
            return None
        kinds = by_kind(usage, self.prompt.segments)
        self.metrics.counted(usage.prompt_tokens, kinds[1], self.org)
        return kinds

    def _headers(self, answer: UpstreamResponse) -> Headers:
        return [*passed(answer.headers), (REQUEST_ID, self.request_id.encode())]


async def pass_error(
    answer: UpstreamResponse, secrets: tuple[bytes, ...], reply: Reply, metrics: Metrics
) -> None:
    """Pass the engine's own words on, unless they repeat what a client must not see."""
    content = await error_words(answer)
    if answer.status in (401, 403):
        raise Unavailable("the engine refused this gateway's own key")
    told = is_error(content) and not any(secret in content for secret in secrets)
    if not told and answer.status == 404:
        raise NotFound("the engine that serves this model does not have this API")
    if not told and answer.status < 500:
        raise Misuse("the engine did not accept this request; check its fields and their types")
    metrics.answered("engine_error", answer.status)
    if not told:  # a page of a proxy, a crash's plain text
        reply.fail(Failure(answer.status, _FAILED, "server_error", "unavailable"))
        return
    wait = answer.header(b"retry-after") or (RETRY_AFTER if answer.status == 429 else None)
    reply.send(answer.status, [*_JSON, *([(b"retry-after", wait)] if wait else [])], content)


async def error_words(answer: UpstreamResponse) -> bytes:
    """The body of an error; nothing of one so long that it can only repeat the request."""
    try:
        return await answer.read(ERROR_BYTES_MAX)
    except TooLong:
        return b""


def to_pass(request: Request) -> Headers:
    return [
        header
        for header in end_to_end(request.headers, _STRIPPED_HEADERS)
        if not header[0].startswith(_STRIPPED_PREFIXES)
    ]


def passed(headers: Headers) -> Headers:
    return end_to_end(headers, _HIDDEN_HEADERS)


def is_error(content: bytes) -> bool:
    """Whether it is an error in a form that clients read: OpenAI's, or SGLang's bare one."""
    try:
        decoded = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return isinstance(decoded, dict) and ("error" in decoded or decoded.get("object") == "error")
