"""A provider's answer on its way to the client: as it is, but for what would tell of others.

Rate limits and their headers count all customers of a workspace (L10), and an error of 401 is about
a key that is ours. Usage stays in the provider's own words.
"""

from __future__ import annotations

from scopekv.errors import Misuse, Overloaded, Unavailable
from scopekv.gateway.http.answer import UpstreamResponse
from scopekv.gateway.http.messages import Headers
from scopekv.gateway.http.reply import Reply
from scopekv.gateway.metrics import Metrics
from scopekv.gateway.passing import ANSWER_BYTES_MAX, REQUEST_ID, error_words, is_error
from scopekv.gateway.reading import Job
from scopekv.gateway.upstreams import errors
from scopekv.gateway.usage import Usage, read_usage

_PASSED = (b"content-type", b"request-id", b"x-request-id")
_JSON: Headers = [(b"content-type", b"application/json")]
_BUSY = (429, 529)
RETRY_SECONDS = 5
RETRY_SECONDS_MAX = 600


async def pass_answer(
    answer: UpstreamResponse, job: Job, upstream: str, reply: Reply, metrics: Metrics
) -> Usage | None:
    """Pass a 200 on, whole or streamed, and return what it said of its tokens."""
    headers = [(k, v) for k, v in answer.headers if k in _PASSED]
    headers.append((REQUEST_ID, job.request_id.encode()))
    if job.body.get("stream"):
        usage = await _stream(answer, job, headers, reply)
    else:
        content = await answer.read(ANSWER_BYTES_MAX)
        usage = read_usage(content)
        reply.send(200, headers, errors.whole_answer(content))
    metrics.answered(job.api.path, 200)
    if usage is not None:
        metrics.upstream_counted(upstream, usage.prompt_tokens, usage.cached or 0)
    return usage


async def _stream(
    answer: UpstreamResponse, job: Job, headers: Headers, reply: Reply
) -> Usage | None:
    tap = job.api.tap(job.body, None, {})
    async for chunk in answer.stream():
        data = errors.events(tap.feed(chunk))
        if not data:
            continue
        if reply.started:
            await reply.write(data)
        else:
            await reply.start(200, headers, data)
    if not reply.started:
        await reply.start(200, headers)
    await reply.finish(errors.events(tap.rest()))
    return tap.usage


async def refuse(
    answer: UpstreamResponse, job: Job, secrets: tuple[bytes, ...], reply: Reply, metrics: Metrics
) -> None:
    """Pass on what the provider says of this request; put the rest in our own words.

    Raises `Overloaded`, `Unavailable` or `Misuse`.
    """
    content = await error_words(answer)
    if answer.status in _BUSY:
        raise Overloaded(
            "the provider takes no more requests just now",
            retry_after_seconds=_wait(answer.header(b"retry-after")),
        )
    if answer.status in (401, 403) or answer.status >= 500 or answer.status < 400:
        raise Unavailable(f"the provider answered {answer.status}")
    if any(secret in content for secret in secrets) or not is_error(content):
        raise Misuse("the provider did not accept this request; check its fields and their types")
    metrics.answered(job.api.path, answer.status)
    headers = [*_JSON, (REQUEST_ID, job.request_id.encode())]
    reply.send(answer.status, headers, content)


def _wait(given: bytes | None) -> int:
    text = (given or b"").decode("latin-1")
    seconds = int(text) if text.isascii() and text.isdigit() and len(text) < 6 else RETRY_SECONDS
    return max(1, min(seconds, RETRY_SECONDS_MAX))
