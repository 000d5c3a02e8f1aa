"""The listening side: accepts connections, keeps their deadlines, stops gracefully."""

import asyncio
import contextlib
import email.utils
import ssl
import time

from scopekv.errors import Misuse
from scopekv.gateway.http.connection import Connection, ErrorMap, Handler, Shared
from scopekv.gateway.http.limits import ServerLimits
from scopekv.gateway.http.messages import Failure, internal_failure

SWEEP_SECONDS_MAX = 1.0
CANCEL_SECONDS = 2.0
STOPPING = Failure(503, "the gateway is stopping: retry", "server_error", "unavailable")


class Server:
    """An HTTP/1.1 server for one handler. Use: `start`, then `close`; once each.

    `error_map` turns an exception of the handler into what the client may see; it must not leak
    internals. Runs on any asyncio loop; measured and meant for uvloop.
    Per request: one task, no timer (deadlines are swept, so they are late by up to a second).
    """

    def __init__(
        self,
        handler: Handler,
        *,
        limits: ServerLimits | None = None,
        error_map: ErrorMap | None = None,
    ) -> None:
        self._handler = handler
        self._limits = limits or ServerLimits()
        self._error_map = error_map or _report_and_hide
        self._listener: asyncio.Server | None = None
        self._sweeper: asyncio.Task[None] | None = None
        self._shared: Shared | None = None

    @property
    def connections(self) -> int:
        """How many client connections are open now."""
        return 0 if self._shared is None else len(self._shared.connections)

    async def start(
        self,
        host: str,
        port: int,
        *,
        tls: ssl.SSLContext | None = None,
        backlog: int = 1024,
        reuse_port: bool = False,
    ) -> int:
        """Listen; the port, which the system chose if `port` is 0. OSError: cannot bind."""
        if self._shared is not None:
            raise Misuse("this server has been started before; make a new one")
        loop = asyncio.get_running_loop()
        shared = Shared(self._handler, self._limits, self._error_map, loop, _date_line())
        self._shared = shared
        self._listener = await loop.create_server(
            lambda: Connection(shared),
            host,
            port,
            ssl=tls,
            backlog=backlog,
            reuse_port=reuse_port or None,
        )
        self._sweeper = loop.create_task(self._sweep(shared))
        bound: int = self._listener.sockets[0].getsockname()[1]
        return bound

    async def close(self, *, grace_seconds: float) -> bool:
        """Stop accepting, let requests in hand finish for `grace_seconds`, then cut the rest.

        True: every request was answered. Idle connections close at once. Idempotent.
        """
        shared, listener = self._shared, self._listener
        if shared is None or listener is None:
            return True
        shared.stopping = True
        listener.close()
        for connection in tuple(shared.connections):
            connection.wind_down()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_seconds):
                if shared.connections:
                    await shared.empty.wait()
        clean = not shared.connections
        for connection in tuple(shared.connections):
            connection.cut(STOPPING)
        if shared.tasks:
            await asyncio.wait(tuple(shared.tasks), timeout=CANCEL_SECONDS)
        for connection in tuple(shared.connections):
            connection.abort()
        if self._sweeper is not None:
            self._sweeper.cancel()
        return clean

    def abort(self) -> None:
        """Take no more connections and cut all there are, unanswered, as a killed process does."""
        shared, listener = self._shared, self._listener
        if shared is None or listener is None:
            return
        shared.stopping = True
        listener.close()
        for connection in tuple(shared.connections):
            connection.abort()
        if self._sweeper is not None:
            self._sweeper.cancel()

    async def _sweep(self, shared: Shared) -> None:
        limits = self._limits
        shortest = min(
            limits.idle_seconds, limits.head_seconds, limits.body_seconds, limits.write_seconds
        )
        pause_seconds = min(SWEEP_SECONDS_MAX, shortest / 4)
        while True:
            await asyncio.sleep(pause_seconds)
            shared.date = _date_line()
            now = shared.loop.time()
            for connection in tuple(shared.connections):
                if connection.deadline <= now:
                    connection.expire()


def _date_line() -> bytes:
    return b"date: %b\r\n" % email.utils.formatdate(time.time(), usegmt=True).encode("ascii")


def _report_and_hide(error: Exception) -> Failure:
    # Without a map of its own the process must still hear of a bug; the client must not.
    context = {"message": "a request handler failed", "exception": error}
    asyncio.get_running_loop().call_exception_handler(context)
    return internal_failure(error)
