"""One client connection of the server: requests in, one at a time to the handler, replies out.

    IDLE --first byte--> HEAD --blank line--> BODY --last byte--> (handler runs) --reply--> IDLE
           idle_seconds        head_seconds          body_seconds   write_seconds per stall

While a handler runs, reading goes on only to notice that the client left; what it pipelines is
kept unparsed up to a bound, then reading pauses.
"""

import asyncio
import enum
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import cast

from scopekv.errors import Misuse
from scopekv.gateway.http.limits import Phase, ServerLimits
from scopekv.gateway.http.messages import Failure, Request, internal_failure, set_no_delay
from scopekv.gateway.http.reply import Reply
from scopekv.gateway.http.requests import RequestParser

Handler = Callable[[Request, Reply], Awaitable[None]]
ErrorMap = Callable[[Exception], Failure]

LINGER_SECONDS = 5.0


@dataclass(slots=True)
class Shared:
    """What every connection of one server shares. Mutable; owned by the server."""

    handler: Handler
    limits: ServerLimits
    error_map: ErrorMap
    loop: asyncio.AbstractEventLoop
    date: bytes
    stopping: bool = False
    empty: asyncio.Event = field(default_factory=asyncio.Event)
    connections: set["Connection"] = field(default_factory=set)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)


class _Mode(enum.Enum):
    READING = "reading"
    ANSWERING = "answering"
    LINGERING = "lingering"  # everything is answered; what still comes in is thrown away
    GONE = "gone"


class Connection(asyncio.Protocol):
    """See the module. `deadline` is loop time; the server's sweep calls `expire` after it."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._limits = shared.limits
        self._parser = RequestParser(shared.limits.request)
        self._phase: Phase | None = None
        self._mode = _Mode.READING
        self._transport: asyncio.Transport
        self._backlog: list[bytes] = []
        self._backlog_bytes = 0
        self._reading = True
        self._writable: asyncio.Future[None] | None = None
        self._reply: Reply | None = None
        self._task: asyncio.Task[None] | None = None
        self.deadline = math.inf

    # What a Reply sees (reply.Wire).

    @property
    def gone(self) -> bool:
        return self._mode is _Mode.GONE

    @property
    def closes(self) -> bool:
        return self._shared.stopping

    @property
    def date(self) -> bytes:
        return self._shared.date

    def write(self, data: bytes) -> None:
        if self._mode is not _Mode.GONE:
            self._transport.write(data)

    async def drain(self) -> None:
        if self._writable is not None:
            await asyncio.shield(self._writable)

    # asyncio.Protocol.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        set_no_delay(self._transport)
        self._transport.set_write_buffer_limits(high=self._limits.write_bytes_high)
        self._shared.connections.add(self)
        self._shared.empty.clear()
        over = len(self._shared.connections) - self._limits.connections_max
        if over > self._limits.connections_max:
            self._transport.abort()  # too many even to be told so
        elif over > 0:
            message = f"The gateway holds its {self._limits.connections_max} connections; retry."
            self._refuse(Failure(503, message, "server_error", "too_many_connections"))
        else:
            self._next()

    def data_received(self, data: bytes) -> None:
        if self._mode is _Mode.READING and self._writable is None:
            self._parser.feed(data)
            self._next()
        elif self._mode in (_Mode.READING, _Mode.ANSWERING):
            self._backlog.append(data)
            self._backlog_bytes += len(data)
            if self._reading and self._backlog_bytes > self._limits.pipelined_bytes_max:
                self._reading = False
                self._transport.pause_reading()

    def eof_received(self) -> bool:
        # A client that has only closed its sending side looks like one that left; as Go and nginx
        # do, count it as gone, so that the engine stops (case R9).
        if self._mode is _Mode.ANSWERING:
            self._leave()
            self._transport.abort()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._leave()
        self._shared.connections.discard(self)
        if not self._shared.connections:
            self._shared.empty.set()

    def pause_writing(self) -> None:
        if self._writable is None:
            self._writable = self._shared.loop.create_future()
            self.deadline = self._shared.loop.time() + self._limits.write_seconds

    def resume_writing(self) -> None:
        if self._writable is None:
            return
        self._writable.set_result(None)
        self._writable = None
        self._phase = None
        if self._mode is _Mode.LINGERING or self._transport.is_closing():
            self.deadline = self._shared.loop.time() + LINGER_SECONDS
        else:
            self.deadline = math.inf
            self._next()

    # The life of a connection.

    def _leave(self) -> None:
        if self._mode is _Mode.GONE:
            return
        self._mode = _Mode.GONE
        self._backlog.clear()
        if self._writable is not None:
            self._writable.set_result(None)
            self._writable = None
        self._end_handler()

    def _end_handler(self) -> None:
        """Cancel the handler, unless its reply is complete: it may be keeping its books."""
        if self._reply is not None and not self._reply.finished and self._task is not None:
            self._task.cancel()

    def _next(self) -> None:
        """Go on after bytes came in or a reply went out: answer, refuse, parse more, or wait."""
        while self._mode is _Mode.READING and self._writable is None:
            if self._parser.ready:
                self._answer(self._parser.ready.popleft())
            elif self._parser.refusal is not None:
                self._refuse(self._parser.refusal)
            elif self._backlog:
                data = b"".join(self._backlog)
                self._backlog.clear()
                self._backlog_bytes = 0
                self._parser.feed(data)
                self._resume_reading()
            else:
                self._wait()
                return

    def _resume_reading(self) -> None:
        if not self._reading:
            self._reading = True
            self._transport.resume_reading()

    def _wait(self) -> None:
        phase = self._parser.phase
        if self._parser.expects_continue and phase is Phase.BODY:
            self._parser.expects_continue = False
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if self._shared.stopping and phase is Phase.IDLE:
            self._transport.close()
        elif phase is not self._phase:  # not at every byte: a trickle must not buy time
            self._phase = phase
            self.deadline = self._shared.loop.time() + self._limits.seconds(phase)

    def _answer(self, request: Request) -> None:
        self._mode = _Mode.ANSWERING
        self._phase = None
        self.deadline = math.inf
        self._reply = Reply(self, request, time.monotonic())
        self._task = self._shared.loop.create_task(self._run(request, self._reply))
        self._shared.tasks.add(self._task)  # the loop itself holds tasks only weakly
        self._task.add_done_callback(self._shared.tasks.discard)

    async def _run(self, request: Request, reply: Reply) -> None:
        try:
            await self._shared.handler(request, reply)
            if not reply.finished:
                raise Misuse("the handler returned without finishing its reply")
        except Exception as error:  # noqa: BLE001  whatever failed, the client gets an answer
            self._fail(reply, error)
        except BaseException:
            self._transport.abort()
            raise
        finally:
            self._reply = self._task = None
        self._after(reply)

    def _fail(self, reply: Reply, error: Exception) -> None:
        if self.gone and not reply.finished:
            return  # most likely the error *is* that the client left
        try:
            failure = self._shared.error_map(error)
        except Exception as broken:  # noqa: BLE001  a broken map must not strand the client
            failure = internal_failure(broken)
        if not reply.finished and not reply.fail(failure):
            self._transport.abort()  # a cut is the only way left to say "incomplete"

    def _after(self, reply: Reply) -> None:
        if self._mode is not _Mode.ANSWERING:
            return
        if reply.keep_alive and not self._transport.is_closing():
            self._mode = _Mode.READING
            self._next()
        elif self._backlog or self._parser.ready or self._parser.refusal:
            self._linger()
        else:
            self.deadline = self._shared.loop.time() + self._limits.write_seconds
            self._transport.close()

    def _refuse(self, failure: Failure) -> None:
        answer = failure.response()
        request = Request("POST", "/", "", [], b"", keep_alive=False)
        self._mode = _Mode.ANSWERING
        Reply(self, request).send(answer.status, answer.headers, answer.body)
        self._linger()

    def _linger(self) -> None:
        # Closing with unread bytes would reset the connection and might destroy the answer on
        # its way (RFC 9112 section 9.6): end our side, and throw away what still comes.
        self._mode = _Mode.LINGERING
        self._backlog.clear()
        self._resume_reading()
        self.deadline = self._shared.loop.time() + LINGER_SECONDS
        if self._transport.can_write_eof():
            self._transport.write_eof()
        else:
            self._transport.close()

    # Called by the server.

    def expire(self) -> None:
        """The deadline has passed."""
        waited_for = self._phase
        if self._mode is _Mode.READING and self._writable is None and waited_for is not Phase.IDLE:
            message = "The request did not arrive in time; send it again."
            self._refuse(Failure(408, message, "invalid_request_error", "request_timeout"))
        else:
            self._transport.abort()

    def wind_down(self) -> None:
        """The server is stopping: close now if idle, else after the request in hand."""
        if self._mode is _Mode.READING and self._writable is None and self._phase is Phase.IDLE:
            self._transport.close()

    def cut(self, failure: Failure) -> None:
        """Tell a client that waits for an answer of `failure`, and close; cancels the handler."""
        self._end_handler()
        if self._reply is not None:
            self._reply.fail(failure)
        self._leave()
        self._transport.close()

    def abort(self) -> None:
        """Cut at once; the handler is cancelled."""
        self._leave()
        self._transport.abort()
