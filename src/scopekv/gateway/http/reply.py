"""The answer to one request, written to one connection: framing, header safety, event streams."""

import functools
import http
import math
from collections.abc import Callable
from typing import Protocol

from scopekv.errors import Misuse
from scopekv.gateway.http.messages import HOP_BY_HOP, Failure, Headers, Request

# An event longer than this is passed on in parts rather than kept whole.
EVENT_BYTES_MAX = 1024 * 1024
OWN_HEADERS = HOP_BY_HOP | {b"content-length", b"date"}
EVENT_ENDS = (b"\n\n", b"\r\n\r\n")


def _as_it_is(failure: Failure) -> Failure:
    return failure


class Wire(Protocol):
    """The connection as a reply sees it."""

    @property
    def gone(self) -> bool: ...

    @property
    def closes(self) -> bool: ...

    @property
    def date(self) -> bytes: ...

    def write(self, data: bytes) -> None: ...

    async def drain(self) -> None: ...


@functools.cache
def status_line(status: int) -> bytes:
    """`HTTP/1.1 200 OK` with its line end."""
    try:
        phrase = http.HTTPStatus(status).phrase
    except ValueError:
        phrase = "Status"
    return b"HTTP/1.1 %d %b\r\n" % (status, phrase.encode("ascii"))


class Reply:
    """Answer with one `send`, or with `start`, any number of `write`, and `finish`.

    Content-Length, Transfer-Encoding, Connection and Date are the server's; given ones are dropped.
    `started`: the status is on the wire, so an error can no longer change it. After the client
    has left, `write` and `finish` raise ConnectionResetError (the server swallows it).
    """

    __slots__ = (
        "_bodyless",
        "_chunked",
        "_events",
        "_held",
        "_keep_alive",
        "_whole_events",
        "_wire",
        "_with_connection",
        "came",
        "finished",
        "started",
        "worded",
    )

    def __init__(self, wire: Wire, request: Request, came: float = math.inf) -> None:
        """`came`: when the request was here whole, by `time.monotonic`."""
        self._wire, self.came = wire, came
        self._bodyless = request.method == "HEAD"
        self._chunked = request.minor_version == 1
        self._keep_alive = request.keep_alive
        self._with_connection = request.minor_version == 0
        self._events = False
        self._whole_events = True
        self._held = b""
        self.started = False
        self.finished = False
        self.worded: Callable[[Failure], Failure] = _as_it_is  # in the form of the API asked

    @property
    def keep_alive(self) -> bool:
        """Whether the connection may carry another request after this reply."""
        return self._keep_alive

    def send(self, status: int, headers: Headers, body: bytes) -> None:
        """The whole answer at once. Does not wait: the next request does, until it is written.

        Misuse: already started, or a header that holds CR, LF or NUL.
        """
        empty = self._bodyless or status == 204 or status == 304
        framing = b"" if status == 204 else b"content-length: %d\r\n" % len(body)
        head = self._head(status, headers, framing)
        self.finished = True
        if empty or not body:
            self._wire.write(head)
        elif len(body) < 65536:
            self._wire.write(head + body)
        else:
            self._wire.write(head)
            self._wire.write(body)

    async def start(self, status: int, headers: Headers, chunk: bytes = b"") -> None:
        """Begin a streamed answer. A `text/event-stream` is forwarded in whole events.

        `chunk`: what there is of the body already; one write then wakes the client, not two.
        """
        if status in (204, 304):
            raise Misuse(f"a {status} answer has no body to stream; use send")
        if self._chunked:
            framing = b"transfer-encoding: chunked\r\n"
        else:
            framing = b""  # HTTP/1.0: the end of the connection is the end of the body
            self._keep_alive = False
        head = self._head(status, headers, framing)
        given = dict(headers)
        plain = given.get(b"content-encoding", b"identity").lower() == b"identity"
        kind = given.get(b"content-type", b"").lower()
        self._events = plain and kind.startswith(b"text/event-stream")
        self._wire.write(head + self._framed(self._whole(chunk)))
        await self._wire.drain()

    async def write(self, chunk: bytes) -> None:
        """Pass on `chunk`; waits while the client reads too slowly."""
        if not self.started or self.finished:
            raise Misuse("write belongs between start and finish")
        if self._wire.gone:
            raise ConnectionResetError("the client has left")
        data = self._framed(self._whole(chunk))
        if data:
            self._wire.write(data)
        await self._wire.drain()

    async def finish(self, chunk: bytes = b"") -> None:
        """End a streamed answer, with what is left of its body, in one write."""
        if not self.started or self.finished:
            raise Misuse("finish belongs after start, once")
        if self._wire.gone:
            raise ConnectionResetError("the client has left")
        whole = self._whole(chunk)
        self._end(self._framed(whole + self._held))
        await self._wire.drain()

    def fail(self, failure: Failure) -> bool:
        """Make an error visible to the client. False: only cutting the connection can show it.

        Before start: an error answer. In an event stream: what is held of a partial event is
        dropped, so that the terminal error event parses, and the stream ends (case R7).
        """
        if self.finished:
            return False
        failure = self.worded(failure)
        if not self.started:
            answer = failure.response()
            self.send(answer.status, answer.headers, answer.body)
            return True
        if not self._events:
            return False
        self._keep_alive = False
        lead = b"" if self._whole_events else b"\n\n"
        self._end(self._framed(lead + failure.event()))
        return True

    def _end(self, data: bytes) -> None:
        self.finished = True
        if self._chunked and not self._bodyless:
            data += b"0\r\n\r\n"
        if data:
            self._wire.write(data)

    def _framed(self, data: bytes) -> bytes:
        if not data or self._bodyless:
            return b""
        return b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data

    def _whole(self, chunk: bytes) -> bytes:
        """What of `chunk` may go on now: in an event stream, whole events."""
        if self._events and (self._held or not chunk.endswith(EVENT_ENDS)):
            return self._hold_partial_event(chunk)
        return chunk

    def _hold_partial_event(self, chunk: bytes) -> bytes:
        """Give back the whole events of what is held plus `chunk`; keep the rest."""
        data = self._held + chunk
        end = max(data.rfind(mark) + len(mark) if mark in data else 0 for mark in EVENT_ENDS)
        self._held = data[end:]
        if end:
            self._whole_events = True
        if len(self._held) > EVENT_BYTES_MAX:
            self._held, self._whole_events = b"", False
            return data
        return data[:end]

    def _head(self, status: int, headers: Headers, framing: bytes) -> bytes:
        if self.started:
            raise Misuse("the answer has already started")
        if not 200 <= status <= 599:
            raise Misuse(f"status {status} is not a final HTTP status (200..599)")
        lines = [key + b": " + value + b"\r\n" for key, value in headers if key not in OWN_HEADERS]
        fields = b"".join(lines)
        # A line end inside a header would let its author write a second answer.
        count = len(lines)
        if fields.count(b"\n") != count or fields.count(b"\r") != count or b"\0" in fields:
            raise Misuse("a reply header holds a line end or NUL")
        if self._wire.closes:
            self._keep_alive = False
        self.started = True
        connection = b""
        if not self._keep_alive:
            connection = b"connection: close\r\n"
        elif self._with_connection:
            connection = b"connection: keep-alive\r\n"
        return b"".join(
            (status_line(status), self._wire.date, fields, framing, connection, b"\r\n")
        )
