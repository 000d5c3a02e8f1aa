"""The calling side: a bounded pool of keep-alive connections to one instance."""

import asyncio
import functools
import re
import ssl
import urllib.parse
from collections import deque

from scopekv.errors import ConfigError, Misuse, Unavailable
from scopekv.gateway.http.answer import UpstreamResponse
from scopekv.gateway.http.limits import ClientLimits
from scopekv.gateway.http.messages import Headers
from scopekv.gateway.http.upstream import UpstreamConnection

# Framing is the pool's; a second Content-Length would be a smuggling vector of our own making.
OWN_HEADERS = frozenset(
    {b"host", b"content-length", b"transfer-encoding", b"connection", b"expect"}
)

TARGET = re.compile(r"/[!-~]*")
SWEEP_SECONDS_MAX = 0.25


class NotSent(Unavailable):
    """No byte of the request reached the instance: trying another one cannot run it twice."""


class Busy(NotSent):
    """This side's own limit of connections is reached; it says nothing about the instance."""


class ClientPool:
    """HTTP/1.1 client for one `http://` or `https://` base URL, whose path prefixes every request.

    One request is one upstream call (case R12), with one exception: see `request`.
    """

    def __init__(
        self,
        base_url: str,
        *,
        limits: ClientLimits | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        try:
            url = urllib.parse.urlsplit(base_url)
            port = url.port
            url.netloc.encode("ascii"), url.path.encode("ascii")
        except ValueError as error:
            raise ConfigError(f"{base_url!r} is not a base URL: {error}") from error
        if url.scheme not in ("http", "https") or not url.hostname or url.query or url.fragment:
            raise ConfigError(
                f"{base_url!r} is not an http or https base URL such as http://host:8000"
            )
        if url.username is not None:
            raise ConfigError("a base URL holds no credentials; set the instance's key instead")
        self._name = f"{url.scheme}://{url.netloc}"
        self._host = url.hostname
        self._port = port or (443 if url.scheme == "https" else 80)
        self._prefix = url.path.rstrip("/").encode("ascii")
        self._host_line = b"host: " + url.netloc.encode("ascii")
        self._tls = (tls or ssl.create_default_context()) if url.scheme == "https" else None
        self._limits = limits or ClientLimits()
        self._idle: deque[UpstreamConnection] = deque()
        self._open: set[UpstreamConnection] = set()
        self._connecting = 0
        self._timer: asyncio.TimerHandle | None = None
        self._sweep_seconds = min(SWEEP_SECONDS_MAX, self._limits.stall_seconds / 4)
        self._closed = False

    @property
    def open(self) -> int:
        """How many connections exist, idle ones included."""
        return len(self._open)

    @property
    def idle(self) -> int:
        """How many connections wait for a request."""
        return len(self._idle)

    async def request(
        self,
        method: str,
        path: str,
        headers: Headers,
        body: bytes,
        *,
        timeout_seconds: float,
        safe: bool | None = None,
    ) -> UpstreamResponse:
        """Send one request; return when the answer's head is here. The caller closes the answer.

        `path` includes the query. `timeout_seconds` bounds connecting and waiting for the head
        (and is late by up to a quarter of a second, see `_sweep`).
        A kept connection that the instance has hung up on is found before use. If it hangs up while
        we write, the request goes out a second time only if it is `safe` (default: GET and HEAD)
        and not one byte of an answer had come, since it may have been run (RFC 9110 section 9.2.2).
        NotSent: could not connect. Unavailable: anything else. Cancelling aborts the connection.
        """
        if self._closed:
            raise Misuse(f"the pool for {self._name} is closed")
        if safe is None:
            safe = method in ("GET", "HEAD")
        data = self._head(method, path, headers, body)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_seconds
        connection = self._reuse(loop.time())
        if connection is not None:
            try:
                return await self._exchange(connection, data, body, method, deadline)
            except Unavailable:
                if not safe or connection.answered or loop.time() >= deadline:
                    raise
        connection = await self._connect(deadline)
        return await self._exchange(connection, data, body, method, deadline)

    async def close(self) -> None:
        """Close every connection, those in use too. Idempotent."""
        self._closed = True
        self._idle.clear()
        if self._timer is not None:
            self._timer.cancel()
        for connection in tuple(self._open):
            connection.abort()
        self._open.clear()

    async def _exchange(
        self, connection: UpstreamConnection, data: bytes, body: bytes, method: str, deadline: float
    ) -> UpstreamResponse:
        if self._timer is None:
            self._timer = connection.loop.call_later(self._sweep_seconds, self._sweep)
        try:
            return await connection.send(data, body, head=method == "HEAD", deadline=deadline)
        except BaseException:
            connection.abort()
            raise

    def _sweep(self) -> None:
        # One timer for all: with one per request and per wait for a chunk, the timers cost more
        # than the parsing.
        self._timer = None
        loop = asyncio.get_running_loop()
        now = loop.time()
        while self._idle and now - self._idle[0].idle_since >= self._limits.idle_seconds:
            self._idle.popleft().abort()
        for connection in tuple(self._open):
            if connection.deadline <= now:
                connection.expire()
        if self._open and not self._closed:
            self._timer = loop.call_later(self._sweep_seconds, self._sweep)

    def _reuse(self, now: float) -> UpstreamConnection | None:
        while self._idle:
            connection = self._idle.pop()  # the youngest: the others may grow old and go
            if now - connection.idle_since < self._limits.idle_seconds and connection.fresh():
                return connection
            connection.abort()
        return None

    async def _connect(self, deadline: float) -> UpstreamConnection:
        if len(self._open) + self._connecting >= self._limits.connections_max:
            raise Busy(
                f"{self._name} has {len(self._open)} connections of ours, which is the limit"
            )
        loop = asyncio.get_running_loop()
        seconds = min(self._limits.connect_seconds, max(0.0, deadline - loop.time()))
        self._connecting += 1
        try:
            async with asyncio.timeout(seconds):
                _, connection = await loop.create_connection(
                    lambda: UpstreamConnection(
                        self._on_idle, self._open.discard, stall_seconds=self._limits.stall_seconds
                    ),
                    self._host,
                    self._port,
                    ssl=self._tls,
                )
        except TimeoutError:
            raise NotSent(f"{self._name} did not accept a connection in {seconds:.1f} s") from None
        except (OSError, ssl.SSLError) as error:
            raise NotSent(f"cannot connect to {self._name}: {type(error).__name__}") from error
        finally:
            self._connecting -= 1
        if self._closed:
            connection.abort()
            raise NotSent(f"the pool for {self._name} was closed")
        self._open.add(connection)
        return connection

    def _on_idle(self, connection: UpstreamConnection) -> None:
        if self._closed or len(self._idle) >= self._limits.idle_max:
            connection.abort()
            return
        connection.idle_since = connection.loop.time()
        self._idle.append(connection)

    def _head(self, method: str, path: str, headers: Headers, body: bytes) -> bytes:
        lines = [key + b": " + value for key, value in headers if key not in OWN_HEADERS]
        lines.append(self._host_line)
        if body or method not in ("GET", "HEAD"):
            lines.append(b"content-length: %d" % len(body))
        fields = b"\r\n".join(lines)
        breaks = len(lines) - 1
        if fields.count(b"\n") != breaks or fields.count(b"\r") != breaks:
            raise Misuse("a request header holds a line end")
        return b"%b%b\r\n\r\n" % (_request_line(method, self._prefix, path), fields)


@functools.lru_cache(maxsize=256)
def _request_line(method: str, prefix: bytes, path: str) -> bytes:
    """With its line end. Raises `Misuse`."""
    if TARGET.fullmatch(path) is None:
        raise Misuse("a request path starts with / and is printable ASCII without blanks")
    return b"%b %b%b HTTP/1.1\r\n" % (method.encode("ascii"), prefix, path.encode("ascii"))
