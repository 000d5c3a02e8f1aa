"""One keep-alive connection to an engine: requests out, parsed answers in."""

import asyncio
import math
import select
from collections.abc import Callable
from typing import cast

import httptools

from scopekv.errors import Unavailable
from scopekv.gateway.http.answer import UpstreamResponse
from scopekv.gateway.http.messages import Headers, set_no_delay

HEAD_BYTES_MAX = 64 * 1024


class _Unasked(Exception):
    """The instance began an answer that no request asked for."""


class UpstreamConnection(asyncio.Protocol):
    """One keep-alive connection; at most one exchange at a time.

    `answered`: at least one byte of the current answer has come. `open`: usable for a request.
    """

    def __init__(
        self,
        on_idle: Callable[["UpstreamConnection"], None],
        on_lost: Callable[["UpstreamConnection"], None],
        *,
        stall_seconds: float,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self._on_idle = on_idle
        self._on_lost = on_lost
        self._stall_seconds = stall_seconds
        self._transport: asyncio.Transport
        self._parts: list[bytes] = []  # of the body, from the bytes that are being parsed
        self.on_body = self._parts.append  # no step of ours for each event of a stream
        self._parser = httptools.HttpResponseParser(self)
        self._poll = select.poll()
        self._head: asyncio.Future[UpstreamResponse] | None = None
        self._response: UpstreamResponse | None = None
        self._headers: Headers = []
        self._head_bytes = 0
        self._framed = False
        self._without_body = False
        self._until_eof = False
        self._paused = False
        self._done = False
        self.open = False
        self.answered = False
        self.idle_since = 0.0
        self.deadline = math.inf

    def send(
        self, data: bytes, body: bytes, *, head: bool, deadline: float
    ) -> asyncio.Future[UpstreamResponse]:
        """Write one request; the future gives the answer's head or Unavailable."""
        self.deadline = deadline
        self._head = self.loop.create_future()
        self._response = None
        self._without_body = head
        self.answered = False
        if len(body) < 65536:
            self._transport.write(data + body)
        else:
            self._transport.write(data)
            self._transport.write(body)
        return self._head

    def fresh(self) -> bool:
        """Whether this idle connection may be used: nothing, and above all no end, has come in.

        Asks the kernel, because the loop may not have seen yet that the engine hung up.
        """
        return self.open and not self._transport.is_closing() and not self._poll.poll(0)

    def expire(self) -> None:
        """The deadline has passed: for the head if it is still awaited, else for the next bytes."""
        if self._response is not None:
            self._response.expire()
        self._fail(Unavailable("the instance did not begin to answer in time"))

    def abort(self) -> None:
        """Close at once."""
        self.open = False
        self._transport.abort()

    def resume_reading(self) -> None:
        if self._paused:
            self._paused = False
            self._transport.resume_reading()

    # asyncio.Protocol.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        set_no_delay(self._transport)
        self._poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)
        self.open = True

    def data_received(self, data: bytes) -> None:
        if self._head is None and self._response is None:
            self.abort()  # bytes that answer nothing: whatever follows could be misattributed
            return
        self.answered = True
        self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._hand_over()
            self._fail(Unavailable("the instance's answer is not valid HTTP/1.1"))
        if self._parts:
            self._hand_over()
        if self._done:
            self._release()
        elif self._response is None and self._head_bytes > HEAD_BYTES_MAX:
            self._fail(Unavailable(f"the answer's head is over {HEAD_BYTES_MAX} bytes"))

    def eof_received(self) -> bool:
        self.open = False
        if self._until_eof and self._response is not None:
            self._response.complete()
            self._response = None
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._on_lost(self)
        self._fail(Unavailable("the instance closed the connection before its answer was complete"))

    def _fail(self, error: Unavailable) -> None:
        if self._head is not None and not self._head.done():
            self._head.set_exception(error)
        if self._response is not None:
            self._response.fail(error)
        self._head = self._response = None
        self.open = False
        self._transport.abort()

    def _release(self) -> None:
        self._done = False
        self._head_bytes = 0
        self.deadline = math.inf
        self.resume_reading()
        sent = self._transport.get_write_buffer_size() == 0
        if self.open and sent:
            self._on_idle(self)
        else:
            self.abort()

    def _hand_over(self) -> None:
        """Give the answer what of its body has been parsed."""
        parts, response = self._parts, self._response
        if parts and response is not None:
            body = parts[0] if len(parts) == 1 else b"".join(parts)
            if response.put(body) and not self._paused:
                self._paused = True
                self._transport.pause_reading()
        parts.clear()

    # Callbacks of httptools.

    def on_message_begin(self) -> None:
        if self._head is None:
            raise _Unasked
        self._headers = []
        self._framed = False

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._response is not None:
            return  # a trailer
        name = name.lower()
        if name == b"content-length" or name == b"transfer-encoding":
            self._framed = True
        self._headers.append((name, value.rstrip(b" \t")))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200 or self._head is None:
            return
        self._response = UpstreamResponse(status, self._headers, self, self._stall_seconds)
        self._until_eof = not (self._framed or self._without_body or status in (204, 304))
        if not self._head.done():
            self._head.set_result(self._response)
        self._head = None
        self.deadline = math.inf
        if self._without_body:
            # httptools would wait for the body that Content-Length promises to a GET.
            self.open = False
            self.on_message_complete()

    def on_message_complete(self) -> None:
        self._hand_over()
        response, self._response = self._response, None
        if response is None:
            return  # 100 Continue, 103 Early Hints: the answer is still to come
        # Asked here because httptools forgets it once the callback returns.
        self.open = self.open and self._parser.should_keep_alive()
        response.complete()
        self._done = True
