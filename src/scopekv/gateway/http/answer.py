"""An engine's answer: its head, and its body as it comes.

Parsed body bytes wait here, not in the connection, up to a high-water mark; beyond it the socket is
not read, so a slow client slows the engine down and does not fill this process's memory.
"""

import asyncio
import math
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import Protocol, Self

from scopekv.errors import Unavailable
from scopekv.gateway.http.messages import Headers

BODY_BYTES_HIGH = 256 * 1024


class TooLong(Unavailable):
    """The body is over the reader's limit. It says nothing about whether the instance works."""


class Source(Protocol):
    """The connection as an answer sees it. After `deadline` (loop time) it fails the answer."""

    loop: asyncio.AbstractEventLoop
    deadline: float

    def resume_reading(self) -> None: ...

    def abort(self) -> None: ...


class _Chunks:
    """An iterator rather than a generator: asyncio registers every generator, which costs more."""

    __slots__ = ("_next",)

    def __init__(self, next_chunk: Callable[[], Awaitable[bytes]]) -> None:
        self._next = next_chunk

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        chunk = await self._next()
        if not chunk:
            raise StopAsyncIteration
        return chunk


class UpstreamResponse:
    """An answer whose head has arrived. Read it with `read` or `stream`, once; then `close`.

    `close` before the end aborts the connection, which is how the engine learns that nobody waits
    (case R9). Use `async with`, so that cancelling the reader closes it.
    """

    __slots__ = (
        "_buffered",
        "_chunks",
        "_complete",
        "_error",
        "_source",
        "_stall_seconds",
        "_waiter",
        "headers",
        "status",
    )

    def __init__(self, status: int, headers: Headers, source: Source, stall_seconds: float) -> None:
        self.status = status
        self.headers = headers
        self._source: Source | None = source
        self._stall_seconds = stall_seconds
        self._chunks: deque[bytes] = deque()
        self._buffered = 0
        self._complete = False
        self._error: Unavailable | None = None
        self._waiter: asyncio.Future[None] | None = None

    def header(self, name: bytes) -> bytes | None:
        """The first value of the header `name` (lower case), or None."""
        for key, value in self.headers:
            if key == name:
                return value
        return None

    async def read(self, bytes_max: int) -> bytes:
        """The whole body. Unavailable: it was cut or stalled; `TooLong`: is over `bytes_max`."""
        parts: list[bytes] = []
        size_bytes = 0
        while not self.ended:
            chunk = self.take() or await self._next()
            size_bytes += len(chunk)
            if size_bytes > bytes_max:
                self.close()
                raise TooLong(f"the instance's answer is over the limit of {bytes_max} bytes")
            parts.append(chunk)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def stream(self) -> AsyncIterator[bytes]:
        """Body bytes as they come, without the chunked framing; what has queued up comes joined.

        Unavailable: the instance closed in mid-body or sent nothing for the stall timeout.
        """
        return _Chunks(self._next)

    async def _next(self) -> bytes:
        """The next body bytes; none at the end."""
        while not self._chunks:
            if self._complete:
                return b""
            if self._error is not None:
                raise self._error
            await self._wait()
        return self.take()

    @property
    def ended(self) -> bool:
        """Whether all of the body has come and been read."""
        return self._complete and not self._chunks

    def take(self) -> bytes:
        """The body bytes that have come and wait; none if that takes waiting."""
        if not self._chunks:
            return b""
        chunk = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks.clear()
        self._buffered = 0
        if self._source is not None:
            self._source.resume_reading()
        return chunk

    def close(self) -> None:
        """Idempotent. Aborts the connection if the body has not fully arrived."""
        if self._source is not None:
            self._source.abort()
            self._source = None
        self._chunks.clear()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def _wait(self) -> None:
        source = self._source
        if source is None:
            raise Unavailable("this answer has been closed")
        source.deadline = source.loop.time() + self._stall_seconds
        self._waiter = source.loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None
            if self._source is not None:  # else the connection may serve another request by now
                source.deadline = math.inf

    def expire(self) -> None:
        """Nothing came for the stall timeout."""
        self.fail(Unavailable(f"the instance sent nothing for {self._stall_seconds} s"))

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # Called by the connection.

    def put(self, data: bytes) -> bool:
        """Add body bytes; True when the reader is too far behind to read on."""
        self._chunks.append(data)
        self._buffered += len(data)
        if self._waiter is not None:
            self._wake()
        return self._buffered > BODY_BYTES_HIGH

    def complete(self) -> None:
        """The body has fully arrived; the connection is no longer ours."""
        self._complete = True
        self._source = None
        self._wake()

    def fail(self, error: Unavailable) -> None:
        """The body will not fully arrive; readers get what came, then `error`."""
        if not self._complete and self._error is None:
            self._error = error
            self._wake()
