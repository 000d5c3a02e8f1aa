"""Bytes to whole requests, or to one refusal. Does no input or output and knows no clock.

Framing is strict because a gateway that disagrees with its engine about where a request ends
lets one caller prefix another's request (request smuggling, RFC 9112 section 11.2).
"""

import functools
import re
from collections import deque
from dataclasses import replace

import httptools

from scopekv.gateway.http.limits import Phase, RequestLimits
from scopekv.gateway.http.messages import Failure, Headers, Request

# RFC 3986 host (name, IPv4, or bracketed IPv6) and an optional port.
HOST = re.compile(rb"(?:[A-Za-z0-9._~%!$&'()*+,;=-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{0,5})?")
KEPT_BYTES_MAX = 128  # of a target or host whose reading is kept: most are asked for again
PIECES_MAX = 1024  # of a body before they are joined: chunks of 2 bytes would take 20 times that


class _Stop(Exception):
    """Leaves httptools from inside a callback once the request is refused."""


def malformed(message: str) -> Failure:
    """A 400 for bytes that are not acceptable HTTP/1.1."""
    return Failure(400, message, "invalid_request_error", "malformed_http")


def split_target(target: bytes) -> tuple[str, str] | None:
    """Path and query of an origin-form or absolute-form request target; None if it is neither."""
    if not target.startswith(b"/"):
        scheme, found, rest = target.partition(b"://")
        if not found or scheme.lower() not in (b"http", b"https"):
            return None
        slash = rest.find(b"/")
        target = rest[slash:] if slash >= 0 else b"/"
    try:
        path, _, query = target.partition(b"#")[0].decode("ascii").partition("?")
    except UnicodeDecodeError:
        return None
    return path, query


@functools.lru_cache(maxsize=256)
def _split_kept(target: bytes) -> tuple[str, str] | None:
    return split_target(target)


@functools.lru_cache(maxsize=256)
def _is_kept_host(value: bytes) -> bool:
    return HOST.fullmatch(value) is not None


def _is_host(value: bytes) -> bool:
    return (
        _is_kept_host(value) if len(value) <= KEPT_BYTES_MAX else HOST.fullmatch(value) is not None
    )


class RequestParser:
    """Feed it bytes; take whole requests from `ready`, then look at `refusal`.

    Once `refusal` is set, nothing more is parsed; requests already in `ready` came before it and
    are still to be answered. `ready` never holds more than `pipelined_max` requests.
    """

    __slots__ = (
        "_body",
        "_body_bytes",
        "_framing_bytes",
        "_head_bytes",
        "_headers",
        "_joined",
        "_limits",
        "_minor_version",
        "_parser",
        "_target",
        "expects_continue",
        "phase",
        "ready",
        "refusal",
    )

    def __init__(self, limits: RequestLimits) -> None:
        self._limits = limits
        self._parser = httptools.HttpRequestParser(self)
        self.ready: deque[Request] = deque()
        self.refusal: Failure | None = None
        self.phase = Phase.IDLE
        self.expects_continue = False
        self._framing_bytes = 0
        self._joined: list[bytes] = []  # of a body in many pieces, those that came first
        self.on_message_begin()
        self.phase = Phase.IDLE

    def feed(self, data: bytes) -> None:
        """Parse `data`. Never raises on bad input: it sets `refusal`."""
        if self.refusal is not None:
            return
        # Bytes since the last progress: bounds a head, chunk extensions or trailers without end,
        # which httptools would collect silently.
        self._framing_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._after_upgrade()
        except httptools.HttpParserError:
            if self.refusal is None:
                self.refusal = malformed("The request is not valid HTTP/1.1.")
        if self._framing_bytes > self._limits.head_bytes_max and self.refusal is None:
            self.refusal = self._head_too_large()

    def _after_upgrade(self) -> None:
        # We speak HTTP/1.1 only; an Upgrade may be ignored (RFC 9110 section 7.8), but httptools
        # stops there, so the connection ends after this answer.
        if self.ready:
            self.ready[-1] = replace(self.ready[-1], keep_alive=False)

    def _refuse(self, failure: Failure) -> None:
        self.refusal = failure
        raise _Stop

    def _head_too_large(self) -> Failure:
        limit = self._limits.head_bytes_max
        message = f"The request line and headers are over the limit of {limit} bytes."
        return Failure(431, message, "invalid_request_error", "headers_too_large")

    # Callbacks of httptools, in the order in which they come.

    def on_message_begin(self) -> None:
        self.phase = Phase.HEAD
        self.expects_continue = False
        self._target = b""
        self._headers: Headers = []
        self._head_bytes = 0
        self._body: list[bytes] = []
        self._body_bytes = 0

    def on_url(self, url: bytes) -> None:
        self._target += url
        self._head_bytes += len(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_bytes += len(name) + len(value) + 4
        if self._head_bytes > self._limits.head_bytes_max:
            self._refuse(self._head_too_large())
        if self.phase is Phase.BODY:
            return  # a trailer: merged into the headers, it could smuggle an Authorization
        if len(self._headers) >= self._limits.headers_max:
            limit = self._limits.headers_max
            message = f"The request has more than {limit} headers."
            self._refuse(Failure(431, message, "invalid_request_error", "headers_too_large"))
        self._headers.append((name.lower(), value.strip(b" \t")))

    def on_headers_complete(self) -> None:
        self.phase = Phase.BODY
        self._framing_bytes = max(0, self._framing_bytes - self._head_bytes)
        version = self._parser.get_http_version()
        http11 = version == "1.1"
        if not http11 and version != "1.0":
            message = "Only HTTP/1.0 and HTTP/1.1 are spoken here."
            self._refuse(Failure(505, message, "invalid_request_error", "malformed_http"))
        self._minor_version = 1 if http11 else 0
        hosts = 0
        lengths: list[bytes] = []
        codings: list[bytes] = []
        for name, value in self._headers:
            if name == b"host":
                hosts += 1
                if not _is_host(value):
                    self._refuse(malformed("The Host header is not a valid host and port."))
            elif name == b"content-length":
                lengths.append(value)
            elif name == b"transfer-encoding":
                codings.append(value.lower())
            elif name == b"expect":
                self._expect(value)
        if hosts > 1 or (http11 and hosts != 1):
            self._refuse(malformed(f"HTTP/1.1 needs exactly one Host header, not {hosts}."))
        self._check_framing(lengths, codings, http11=http11)

    def _expect(self, value: bytes) -> None:
        if value.lower() != b"100-continue":
            message = "The only expectation understood is 100-continue."
            self._refuse(Failure(417, message, "invalid_request_error", "expectation_failed"))
        self.expects_continue = True

    def _check_framing(self, lengths: list[bytes], codings: list[bytes], *, http11: bool) -> None:
        if lengths and codings:
            self._refuse(malformed("Content-Length and Transfer-Encoding exclude each other."))
        if len(lengths) > 1 or (lengths and not lengths[0].isdigit()):
            self._refuse(malformed("Content-Length must be given once, as decimal digits."))
        if codings and (codings != [b"chunked"] or not http11):
            self._refuse(malformed("The only Transfer-Encoding understood is chunked."))
        if lengths and int(lengths[0]) > self._limits.body_bytes_max:
            self._refuse_body()

    def _refuse_body(self) -> None:
        limit = self._limits.body_bytes_max
        message = f"The request body is over the limit of {limit} bytes; send less."
        self._refuse(Failure(413, message, "invalid_request_error", "request_too_large"))

    def on_body(self, body: bytes) -> None:
        self._framing_bytes = 0
        self.expects_continue = False  # it did not wait
        self._body_bytes += len(body)
        if self._body_bytes > self._limits.body_bytes_max:
            self._refuse_body()
        self._body.append(body)
        if len(self._body) >= PIECES_MAX:
            self._joined.append(b"".join(self._body))
            self._body.clear()

    def on_message_complete(self) -> None:
        self._framing_bytes = 0
        target = self._target
        split = _split_kept(target) if len(target) <= KEPT_BYTES_MAX else split_target(target)
        if split is None:
            self._refuse(malformed("The request target is neither a path nor an http URL."))
            return
        if len(self.ready) >= self._limits.pipelined_max:
            limit = self._limits.pipelined_max
            message = f"More than {limit} requests were pipelined; wait for answers."
            kind, code = "invalid_request_error", "too_many_pipelined"
            self._refuse(Failure(429, message, kind, code, retry_after_seconds=1))
        pieces = self._body
        if self._joined:
            pieces, self._joined = [*self._joined, *pieces], []
        body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        self.ready.append(
            Request(
                self._parser.get_method().decode("ascii"),
                split[0],
                split[1],
                self._headers,
                body,
                keep_alive=self._parser.should_keep_alive(),
                minor_version=self._minor_version,
            )
        )
        self._body = []
        self.expects_continue = False
        self.phase = Phase.IDLE
