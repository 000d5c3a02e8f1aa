"""JSON over HTTP for blocking callers: kept connections, a bound on time, one retry of a stale one.

Standard library alone, because engine workers import it too.
"""

from __future__ import annotations

import http.client
import io
import json
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from scopekv.errors import ConfigError, Unavailable

ANSWER_BYTES_MAX = 1 << 20
IDLE_MAX = 4
_STALE = (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError)


class JsonHttp:
    """Calls one server. Thread-safe. `what` names it in messages; headers and bodies never show."""

    def __init__(
        self, url: str, *, what: str, ca_file: Path | None, timeout_seconds: float
    ) -> None:
        """Nothing is connected yet. Raises `ConfigError` for a URL or a CA file of no use."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
            # It may hold a password, mistyped or not: it is not repeated.
            raise ConfigError(f"{what}: its address is not http://HOST:PORT or https://HOST:PORT")
        if parts.username or parts.password:
            raise ConfigError(f"{what}: its address must not hold a user or a password")
        try:
            self._host, self._port = parts.hostname, parts.port
            self._tls = _context(ca_file) if parts.scheme == "https" else None
        except (OSError, ValueError) as error:
            raise ConfigError(f"{what}: bad port, or CA file {ca_file} cannot be used") from error
        self._prefix = parts.path.rstrip("/")
        self._what, self._timeout = what, timeout_seconds
        self._lock = threading.Lock()
        self._idle: list[http.client.HTTPConnection] = []

    def call(
        self, method: str, path: str, headers: Mapping[str, str], body: Mapping[str, Any] | None
    ) -> tuple[int, dict[str, Any]]:
        """Return the status and the JSON object, empty where the answer is none.

        Raises `Unavailable`. The whole answer has `timeout_seconds`, twice that where a kept
        connection was stale; names are looked up, and further addresses tried, besides.
        """
        data = None if body is None else json.dumps(body).encode()
        sent = {"Content-Type": "application/json", **headers}
        kept = self._take()
        if kept is not None:
            try:
                return self._exchange(kept, method, path, sent, data)
            except _STALE:
                kept.close()  # the server closed it while it lay idle: nothing was read of this
            except (OSError, http.client.HTTPException) as error:
                raise self._unavailable(error) from error
        try:
            return self._exchange(self._connection(), method, path, sent, data)
        except (OSError, http.client.HTTPException) as error:
            raise self._unavailable(error) from error

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _exchange(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        headers: Mapping[str, str],
        data: bytes | None,
    ) -> tuple[int, dict[str, Any]]:
        ends_at = time.monotonic() + self._timeout
        connection.response_class = partial(_answer, ends_at)  # type: ignore[assignment]
        done = False
        try:
            connection.request(method, self._prefix + path, body=data, headers=dict(headers))
            response = connection.getresponse()
            content = _read(response)
            done = response.isclosed() and not response.will_close
        finally:
            if not (done and self._keep(connection)):
                connection.close()
        return response.status, _object(content)

    def _connection(self) -> http.client.HTTPConnection:
        if self._tls is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout)
        return http.client.HTTPSConnection(
            self._host, self._port, timeout=self._timeout, context=self._tls
        )

    def _take(self) -> http.client.HTTPConnection | None:
        with self._lock:
            return self._idle.pop() if self._idle else None

    def _keep(self, connection: http.client.HTTPConnection) -> bool:
        if connection.sock is None:
            return False
        connection.sock.settimeout(self._timeout)
        with self._lock:
            if len(self._idle) >= IDLE_MAX:
                return False
            self._idle.append(connection)
        return True

    def _unavailable(self, error: Exception) -> Unavailable:
        return Unavailable(f"{self._what} is out of reach ({type(error).__name__})")


def _answer(ends_at: float, sock: socket.socket, **named: Any) -> http.client.HTTPResponse:
    """The answer that comes over `sock`, headers included, until `ends_at` (monotonic)."""
    return http.client.HTTPResponse(_Timed(sock, ends_at), **named)  # type: ignore[arg-type]


class _Timed:
    """What `HTTPResponse` asks of a socket."""

    def __init__(self, sock: socket.socket, ends_at: float) -> None:
        self._sock, self._ends_at = sock, ends_at

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(_TimedReads(self._sock, self._ends_at))


class _TimedReads(io.RawIOBase):
    """Each read has what is left of the time: a server that sends byte by byte gets no more."""

    def __init__(self, sock: socket.socket, ends_at: float) -> None:
        self._sock, self._ends_at = sock, ends_at
        self._raw = sock.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._ends_at - time.monotonic()
        if left <= 0:
            raise TimeoutError("no whole answer in time")
        self._sock.settimeout(left)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


def _read(response: http.client.HTTPResponse) -> bytes:
    content = bytearray()
    while chunk := response.read1(1 << 16):
        content += chunk
        if len(content) > ANSWER_BYTES_MAX:
            raise TimeoutError("an answer without end")
    response.read()  # nothing is left; closes it, so that the connection serves again
    return bytes(content)


def _context(ca_file: Path | None) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(ca_file) if ca_file else None)


def _object(content: bytes) -> dict[str, Any]:
    try:
        found = json.loads(content)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
