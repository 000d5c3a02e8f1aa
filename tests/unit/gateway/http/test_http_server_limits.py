"""The server against hostile, broken, slow and too many clients, and while it stops."""

import asyncio
import json
import socket

import pytest

from scopekv.gateway.http import Reply, Request, RequestLimits, ServerLimits
from tests.unit.gateway.http.sockets import connected, on_uvloop, serving, until

EVENTS = [(b"content-type", b"text/event-stream")]
SMALL = ServerLimits(
    request=RequestLimits(head_bytes_max=2000, headers_max=10, body_bytes_max=5000, pipelined_max=3)
)
CHUNKED = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"


async def never(_request: Request, _reply: Reply) -> None:
    raise AssertionError("the handler must not see this request")


async def answer_to(data: bytes, limits: ServerLimits = SMALL) -> tuple[int, bytes]:
    """Status and everything the server says to `data`, until it hangs up; no handler may run."""
    async with serving(never, limits) as (_, port), connected(port) as (reader, writer):
        writer.write(data)
        answer = await reader.read()
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"connection: close" in head
    assert answer.count(b"\r\ndate: ") == 1
    assert set(json.loads(body)["error"]) == {"message", "type", "param", "code"}
    return int(head.split(b" ")[1]), body


def head(*lines: bytes, first: bytes = b"POST / HTTP/1.1") -> bytes:
    return b"\r\n".join((first, *lines, b"", b""))


SMUGGLED = b"0\r\n\r\nGET /admin HTTP/1.1\r\nHost: a\r\n\r\n"
VECTORS = {
    "length-and-chunked": head(b"Host: a", b"Content-Length: 5", b"Transfer-Encoding: chunked"),
    "chunked-and-length": head(b"Host: a", b"Transfer-Encoding: chunked", b"Content-Length: 5"),
    "two-lengths": head(b"Host: a", b"Content-Length: 5", b"Content-Length: 6"),
    "same-length-twice": head(b"Host: a", b"Content-Length: 5", b"Content-Length: 5"),
    "length-list": head(b"Host: a", b"Content-Length: 5, 5"),
    "length-plus": head(b"Host: a", b"Content-Length: +5"),
    "length-hex": head(b"Host: a", b"Content-Length: 0x5"),
    "length-huge": head(b"Host: a", b"Content-Length: 99999999999999999999999"),
    "length-empty": head(b"Host: a", b"Content-Length: "),
    "coding-list": head(b"Host: a", b"Transfer-Encoding: identity, chunked"),
    "coding-twice": head(b"Host: a", b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"),
    "coding-unknown": head(b"Host: a", b"Transfer-Encoding: xchunked"),
    "coding-tab": head(b"Host: a", b"Transfer-Encoding: \x0bchunked"),
    "coding-in-1.0": head(b"Host: a", b"Transfer-Encoding: chunked", first=b"POST / HTTP/1.0"),
    "blank-before-colon": head(b"Host: a", b"Transfer-Encoding : chunked"),
    "folded": head(b"Host: a", b"X: b", b" Transfer-Encoding: chunked"),
    "bare-lf": b"POST / HTTP/1.1\nHost: a\nContent-Length: 5\n\n",
    "bare-cr": head(b"Host: a", b"X: b\rTransfer-Encoding: chunked"),
    "nul": head(b"Host: a", b"X: b\x00c"),
    "no-host": head(b"Content-Length: 0"),
    "two-hosts": head(b"Host: a", b"Host: b"),
    "host-with-path": head(b"Host: a/b"),
    "host-with-user": head(b"Host: me@a"),
    "host-empty": head(b"Host: "),
    "chunk-size-bad": CHUNKED + b"zz\r\n",
    "chunk-size-negative": CHUNKED + b"-1\r\n",
    "chunk-without-end": CHUNKED + b"3\r\nabcdef\r\n",
    "chunk-bare-lf": CHUNKED + b"3\nabc\n",
    "target-relative": head(b"Host: a", first=b"GET admin HTTP/1.1"),
    "target-scheme": head(b"Host: a", first=b"GET ftp://a/ HTTP/1.1"),
    "connect": head(b"Host: a", first=b"CONNECT a:443 HTTP/1.1"),
    "http2-preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "method-unknown": head(b"Host: a", first=b"G\xc3T / HTTP/1.1"),
    "tls-hello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 32,
}


@pytest.mark.parametrize("name", VECTORS)
@on_uvloop
async def test_ambiguous_or_malformed_requests_are_refused_and_nothing_after_them_runs(
    name: str,
) -> None:
    status, _ = await answer_to(VECTORS[name] + SMUGGLED)
    assert status == 400


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (head(b"Host: a", b"Content-Length: 5001"), 413),
        (head(b"Host: a", b"Content-Length: 5001", b"Expect: 100-continue"), 413),
        (CHUNKED + b"1389\r\n" + b"x" * 5001, 413),
        (CHUNKED + b"3e8\r\n%b\r\n" % (b"x" * 1000) * 6, 413),
        (b"GET /" + b"x" * 2500, 431),
        (head(b"Host: a", b"X: " + b"x" * 2500), 431),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 2500, 431),
        (head(b"Host: a", *(b"X-%d: y" % n for n in range(10))), 431),
        (CHUNKED + b"1;" + b"x" * 2500, 431),
        (CHUNKED + b"1\r\na\r\n0\r\n" + b"X: y\r\n" * 500, 431),
        (b"\r\n" * 1500, 431),
        (head(b"Host: a", b"Expect: tea"), 417),
        (head(b"Host: a", first=b"GET / HTTP/2.0"), 505),
        (head(b"Host: a", first=b"GET /"), 505),
    ],
)
@on_uvloop
async def test_what_is_over_a_limit_is_refused_with_its_status(data: bytes, status: int) -> None:
    assert (await answer_to(data))[0] == status


@on_uvloop
async def test_a_client_that_keeps_sending_can_still_read_the_413() -> None:
    async with serving(never, SMALL) as (_, port), connected(port) as (reader, writer):
        writer.write(head(b"Host: a", b"Content-Length: 20000000"))
        for _ in range(200):
            writer.write(b"x" * 100_000)
            await writer.drain()
        assert (await reader.read()).startswith(b"HTTP/1.1 413 ")


@on_uvloop
async def test_a_good_request_before_a_bad_one_is_answered_first() -> None:
    async def handler(request: Request, reply: Reply) -> None:
        await asyncio.sleep(0)
        reply.send(200, [], request.path.encode())

    async with serving(handler, SMALL) as (_, port), connected(port) as (reader, writer):
        writer.write(head(b"Host: a", first=b"GET /good HTTP/1.1") + VECTORS["two-lengths"])
        answer = await reader.read()
        assert answer.index(b"/good") < answer.index(b"HTTP/1.1 400 ")


@on_uvloop
async def test_an_upgrade_is_ignored_and_ends_the_connection() -> None:
    async def handler(_request: Request, reply: Reply) -> None:
        reply.send(200, [], b"plain")

    lines = (b"Host: a", b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c")
    async with serving(handler, SMALL) as (_, port), connected(port) as (reader, writer):
        writer.write(head(*lines, first=b"GET / HTTP/1.1") + SMUGGLED)
        answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.endswith(b"connection: close\r\n\r\nplain")


@pytest.mark.parametrize(
    ("data", "answer"),
    [
        (b"", b""),
        (b"GET / HT", b"HTTP/1.1 408 "),
        (head(b"Host: a", b"Content-Length: 5"), b"HTTP/1.1 408 "),
    ],
)
@on_uvloop
async def test_a_client_that_stops_sending_is_let_go(data: bytes, answer: bytes) -> None:
    limits = ServerLimits(idle_seconds=0.05, head_seconds=0.05, body_seconds=0.05)
    async with serving(never, limits) as (_, port), connected(port) as (reader, writer):
        writer.write(data)
        said = await reader.read()
        assert said.startswith(answer)
        assert bool(said) == bool(answer)


@on_uvloop
async def test_a_client_that_leaves_in_mid_body_runs_no_handler() -> None:
    async with serving(never, SMALL) as (server, port):
        async with connected(port) as (_, writer):
            writer.write(head(b"Host: a", b"Content-Length: 5") + b"ab")
            await writer.drain()
            await until(lambda: server.connections == 1)
        await until(lambda: server.connections == 0)


def slow_socket(port: int) -> socket.socket:
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
    connection.connect(("127.0.0.1", port))
    connection.sendall(head(b"Host: a", first=b"GET / HTTP/1.1"))
    return connection


@on_uvloop
async def test_a_slow_reader_holds_the_handler_back_and_then_gets_every_byte() -> None:
    written = 0

    async def handler(_request: Request, reply: Reply) -> None:
        nonlocal written
        await reply.start(200, [])
        for _ in range(400):
            await reply.write(b"x" * 50_000)
            written += 50_000
        await reply.finish()

    async with serving(handler, ServerLimits()) as (_, port):
        connection = await asyncio.to_thread(slow_socket, port)
        before = -1
        while before != written or not written:  # until the handler stands still
            before = written
            await asyncio.sleep(0.05)
        assert written < 20_000_000
        reader, writer = await asyncio.open_connection(sock=connection)
        body_bytes = 0
        await reader.readuntil(b"\r\n\r\n")
        while size := int(await reader.readline(), 16):
            body_bytes += len((await reader.readexactly(size + 2))[:-2])
        writer.transport.abort()
        assert body_bytes == 20_000_000


@on_uvloop
async def test_a_reader_that_never_reads_is_cut_and_its_handler_cancelled() -> None:
    cancelled = asyncio.Event()

    async def handler(_request: Request, reply: Reply) -> None:
        await reply.start(200, [])
        try:
            while True:
                await reply.write(b"x" * 50_000)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async with serving(handler, ServerLimits(write_seconds=0.1)) as (_, port):
        connection = await asyncio.to_thread(slow_socket, port)
        async with asyncio.timeout(60):
            await cancelled.wait()
        connection.close()


@on_uvloop
async def test_one_connection_too_many_is_told_so() -> None:
    async with serving(never, ServerLimits(connections_max=1)) as (server, port):
        async with connected(port), connected(port) as (reader, _):
            assert (await reader.read()).startswith(b"HTTP/1.1 503 ")
        await until(lambda: server.connections == 0)


@on_uvloop
async def test_stopping_finishes_what_is_in_hand_and_closes_the_rest() -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def handler(_request: Request, reply: Reply) -> None:
        begun.set()
        await go.wait()
        reply.send(200, [], b"done")

    async with (
        serving(handler, ServerLimits()) as (server, port),
        connected(port) as (reader, writer),
        connected(port) as (idle_reader, _),
    ):
        writer.write(head(b"Host: a", first=b"GET / HTTP/1.1"))
        await begun.wait()
        closing = asyncio.create_task(server.close(grace_seconds=20))
        assert await idle_reader.read() == b""
        with pytest.raises(OSError, match=r"\d"):
            await asyncio.open_connection("127.0.0.1", port)
        go.set()
        answer = await reader.read()
        assert answer.endswith(b"connection: close\r\n\r\ndone")
        assert await closing


@on_uvloop
async def test_stopping_cancels_what_outlasts_the_grace() -> None:
    begun, cancelled = asyncio.Event(), asyncio.Event()

    async def handler(_request: Request, _reply: Reply) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async with serving(handler, ServerLimits()) as (server, port), connected(port) as (_, writer):
        writer.write(head(b"Host: a", first=b"GET / HTTP/1.1"))
        await begun.wait()
        assert not await server.close(grace_seconds=0.01)
        assert cancelled.is_set()
        assert server.connections == 0
