"""What crosses the seam between the HTTP data plane and the gateway's handlers.

Header names are lower-case bytes, values are bytes without surrounding blanks, order is kept.
"""

import asyncio
import json
import socket
from dataclasses import dataclass

from scopekv.core.values import light_value
from scopekv.errors import Misuse

Headers = list[tuple[bytes, bytes]]

# RFC 9110 section 7.6.1: these describe one connection, not the message.
HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
NOT_END_TO_END = HOP_BY_HOP | {b"content-length"}


@light_value()
class Request:
    """One whole request. `path` and `query` are as sent (not percent-decoded), `query` without `?`.

    `keep_alive` and `minor_version` (0 or 1, of HTTP/1) concern the connection only.
    """

    method: str
    path: str
    query: str
    headers: Headers
    body: bytes
    keep_alive: bool = True
    minor_version: int = 1

    def header(self, name: bytes) -> bytes | None:
        """The first value of the header `name` (lower case), or None."""
        for key, value in self.headers:
            if key == name:
                return value
        return None

    def header_all(self, name: bytes) -> list[bytes]:
        """Every value of `name` (lower case), in order: two Authorization headers show as two."""
        return [value for key, value in self.headers if key == name]


@dataclass(frozen=True, slots=True)
class Response:
    """A whole answer, for code that computes one before it has a connection to write to."""

    status: int
    headers: Headers
    body: bytes


@dataclass(frozen=True, slots=True)
class Failure:
    """A refusal in OpenAI's error shape. The message goes to the client: no internals in it.

    `retry_after_seconds`: when the client may come back, of what was too much.
    """

    status: int
    message: str
    type: str
    code: str
    retry_after_seconds: int | None = None

    def __post_init__(self) -> None:
        if not 400 <= self.status <= 599:
            raise Misuse(f"a failure's status is {self.status}; it must lie in 400..599")

    def body(self) -> bytes:
        """`{"error": {...}}` as one line of JSON, so that it also fits one SSE `data:` field."""
        error = {"message": self.message, "type": self.type, "param": None, "code": self.code}
        return json.dumps({"error": error}).encode()

    def event(self) -> bytes:
        """The failure as the last event of a stream."""
        return b"data: %b\n\n" % self.body()

    @property
    def retry(self) -> Headers:
        """The header that says when to come back, where there is one to say."""
        if self.retry_after_seconds is None:
            return []
        return [(b"retry-after", b"%d" % self.retry_after_seconds)]

    def response(self) -> Response:
        """The failure as a whole answer."""
        headers = [(b"content-type", b"application/json"), *self.retry]
        return Response(self.status, headers, self.body())


def set_no_delay(transport: asyncio.Transport) -> None:
    """TCP_NODELAY: without it, Nagle and delayed ACKs stall small events by 40 ms (case R8)."""
    connected = transport.get_extra_info("socket")
    if connected is not None and connected.family in (socket.AF_INET, socket.AF_INET6):
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def internal_failure(error: Exception) -> Failure:
    """The answer to an error that nobody mapped; says nothing about `error` on purpose."""
    del error
    message = (
        "The gateway failed while answering this request. Retry; if it persists, ask the operator."
    )
    return Failure(500, message, "server_error", "internal_error")


def end_to_end(headers: Headers, but: frozenset[bytes] = frozenset()) -> Headers:
    """The headers a proxy may pass on: without hop-by-hop ones, those that `Connection` names,
    and Content-Length (each side frames its own messages). RFC 9110 section 7.6.1.

    `but`: others that stay behind as well.
    """
    found: Headers = []
    named: set[bytes] = set()
    for header in headers:
        key = header[0]
        if key in NOT_END_TO_END:
            if key == b"connection":
                named.update(item.strip().lower() for item in header[1].split(b","))
        elif key not in but:
            found.append(header)
    return [header for header in found if header[0] not in named] if named else found
