"""The server against well-behaved and leaving clients, over real loopback sockets."""

import asyncio
import contextlib
import functools
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest
import uvloop

from scopekv.gateway.http import Failure, Handler, Reply, Request, Server, ServerLimits

EVENTS = [(b"content-type", b"text/event-stream")]
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def on_uvloop(case: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test on the loop that production uses."""

    @functools.wraps(case)
    def run(*args: Any, **values: Any) -> None:
        uvloop.run(case(*args, **values))

    return run


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.001)


def hide(error: Exception) -> Failure:
    return Failure(500, f"hidden {type(error).__name__}", "server_error", "internal_error")


@contextlib.asynccontextmanager
async def serving(
    handler: Handler, limits: ServerLimits | None = None
) -> AsyncIterator[tuple[Server, int]]:
    server = Server(handler, limits=limits, error_map=hide)
    port = await server.start("127.0.0.1", 0)
    try:
        yield server, port
    finally:
        await server.close(grace_seconds=0)


@contextlib.asynccontextmanager
async def connected(port: int) -> AsyncIterator[Streams]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        async with asyncio.timeout(60):
            yield reader, writer
    finally:
        writer.transport.abort()


async def read_reply(reader: asyncio.StreamReader) -> tuple[int, bytes, bytes]:
    """Status, head and body of one reply."""
    head = await reader.readuntil(b"\r\n\r\n")
    status = int(head.split(b" ")[1])
    if b"transfer-encoding: chunked" in head:
        body = b""
        while size := int(await reader.readline(), 16):
            body += (await reader.readexactly(size + 2))[:-2]
        await reader.readexactly(2)
        return status, head, body
    length = int(head.partition(b"content-length: ")[2].split(b"\r\n")[0])
    return status, head, await reader.readexactly(length)


def post(body: bytes = b"", extra: bytes = b"", path: bytes = b"/") -> bytes:
    size = b"%d" % len(body)
    return b"POST %b HTTP/1.1\r\nHost: a\r\nContent-Length: %b\r\n%b\r\n%b" % (
        path,
        size,
        extra,
        body,
    )


async def echo(request: Request, reply: Reply) -> None:
    reply.send(200, [(b"x-path", request.path.encode())], request.body)


@on_uvloop
async def test_one_connection_carries_many_requests() -> None:
    async with serving(echo) as (_, port), connected(port) as (reader, writer):
        for number in range(3):
            writer.write(post(b"body %d" % number, path=b"/p%d?q=1" % number))
            status, head, body = await read_reply(reader)
            assert (status, body) == (200, b"body %d" % number)
            assert b"x-path: /p%d\r\n" % number in head
            assert head.count(b"date: ") == 1
            assert b"connection:" not in head


@on_uvloop
async def test_pipelined_requests_are_answered_in_order_and_never_overlap() -> None:
    running = 0

    async def handler(request: Request, reply: Reply) -> None:
        nonlocal running
        running += 1
        assert running == 1
        for _ in range(3):
            await asyncio.sleep(0)
        reply.send(200, [], request.body)
        running -= 1

    async with serving(handler) as (_, port), connected(port) as (reader, writer):
        writer.write(b"".join(post(b"%d" % number) for number in range(10)))
        await writer.drain()
        writer.write(post(b"10") + post(b"x" * 200_000))
        answers = [(await read_reply(reader))[2] for _ in range(12)]
    assert answers == [*(b"%d" % number for number in range(11)), b"x" * 200_000]


@on_uvloop
async def test_a_request_split_at_every_byte_is_the_same_request() -> None:
    data = b"POST /a?b HTTP/1.1\r\nHost: a\r\nX-Long: v  \r\nTransfer-Encoding: chunked\r\n\r\n"
    data += b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"

    async def handler(request: Request, reply: Reply) -> None:
        assert (request.path, request.query, request.header(b"x-long")) == ("/a", "b", b"v")
        reply.send(200, [], request.body)

    async with serving(handler) as (_, port), connected(port) as (reader, writer):
        for byte in data:
            writer.write(bytes([byte]))
            await asyncio.sleep(0)
        assert (await read_reply(reader))[::2] == (200, b"abcde")


@on_uvloop
async def test_expect_continue_is_answered_before_the_body() -> None:
    async with serving(echo) as (_, port), connected(port) as (reader, writer):
        data = post(b"hello", b"Expect: 100-continue\r\n")
        writer.write(data[:-5])
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(data[-5:])
        assert (await read_reply(reader))[::2] == (200, b"hello")


@on_uvloop
async def test_trailers_never_become_headers() -> None:
    seen: list[Request] = []

    async def handler(request: Request, reply: Reply) -> None:
        seen.append(request)
        reply.send(200, [], b"")

    async with serving(handler) as (_, port), connected(port) as (reader, writer):
        writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        writer.write(b"1;ext=1\r\na\r\n0\r\nAuthorization: Bearer other\r\n\r\n")
        await read_reply(reader)
    assert seen[0].body == b"a"
    assert seen[0].header(b"authorization") is None


@on_uvloop
async def test_both_of_two_authorization_headers_are_seen() -> None:
    async def handler(request: Request, reply: Reply) -> None:
        reply.send(200, [], b"|".join(request.header_all(b"authorization")))

    async with serving(handler) as (_, port), connected(port) as (reader, writer):
        writer.write(post(extra=b"Authorization: one\r\nauthorization: two\r\n"))
        assert (await read_reply(reader))[2] == b"one|two"


@on_uvloop
async def test_http_1_0_and_head_are_framed_their_own_way() -> None:
    async def handler(request: Request, reply: Reply) -> None:
        if request.path == "/stream":
            await reply.start(200, [])
            await reply.write(b"part")
            await reply.finish()
        else:
            reply.send(200, [], b"whole")

    async with serving(handler) as (_, port):
        async with connected(port) as (reader, writer):
            writer.write(b"GET /stream HTTP/1.0\r\n\r\n")
            answer = await reader.read()
            assert answer.endswith(b"\r\n\r\npart")
            assert b"chunked" not in answer
        async with connected(port) as (reader, writer):
            writer.write(b"HEAD / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            answer = await reader.read()
            assert b"content-length: 5\r\n" in answer
            assert answer.endswith(b"connection: close\r\n\r\n")


@on_uvloop
async def test_a_failing_handler_gives_a_500_without_internals_and_the_connection_lives() -> None:
    async def handler(request: Request, reply: Reply) -> None:
        if request.path == "/inject":
            reply.send(200, [(b"x", b"a\r\nset-cookie: b")], b"")
        elif request.path == "/silent":
            return
        elif request.path == "/late":
            reply.send(200, [], b"complete")
        raise RuntimeError("the key is sk-secret")

    async with serving(handler) as (_, port), connected(port) as (reader, writer):
        for path in (b"/", b"/inject", b"/silent"):
            writer.write(post(path=path))
            status, head, body = await read_reply(reader)
            assert status == 500
            assert set(json.loads(body)["error"]) == {"message", "type", "param", "code"}
            assert b"secret" not in head + body
            assert b"set-cookie" not in head + body
        writer.write(post(path=b"/late") * 2)
        assert [(await read_reply(reader))[2] for _ in range(2)] == [b"complete"] * 2


@pytest.mark.parametrize("partial", [b"", b'data: {"id', b'data: {"id": 1}\n'])
@on_uvloop
async def test_a_stream_that_fails_ends_in_one_error_event_that_parses(partial: bytes) -> None:
    async def handler(_request: Request, reply: Reply) -> None:
        await reply.start(200, EVENTS)
        await reply.write(b'data: {"id": 0}\n\n' + partial)
        raise RuntimeError("instance died")

    async with serving(handler) as (_, port), connected(port) as (reader, writer):
        writer.write(post())
        status, _, body = await read_reply(reader)
        assert await reader.read() == b""
    events = [json.loads(event.removeprefix(b"data: ")) for event in body.split(b"\n\n")[:-1]]
    assert status == 200
    assert events[0] == {"id": 0}
    assert events[1]["error"]["code"] == "internal_error"
    assert len(events) == 2


@on_uvloop
async def test_split_events_arrive_whole_and_unchanged() -> None:
    stream = b"data: a\n\ndata: b\r\n\r\n: comment\n\ndata: [DONE]\n\ntail"

    async def handler(_request: Request, reply: Reply) -> None:
        await reply.start(200, EVENTS)
        for byte in stream:
            await reply.write(bytes([byte]))
        await reply.finish()

    async with serving(handler) as (_, port), connected(port) as (reader, writer):
        writer.write(post())
        assert (await read_reply(reader))[2] == stream


class Wire:
    """A connection that keeps what each write gave it."""

    gone = closes = False
    date = b"date: then\r\n"

    def __init__(self) -> None:
        self.writes: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.writes.append(data)

    async def drain(self) -> None:
        pass


@on_uvloop
async def test_what_is_at_hand_goes_out_in_one_write_with_the_head_and_with_the_end() -> None:
    request, wire = Request("POST", "/", "", [], b""), Wire()
    reply = Reply(wire, request)
    await reply.start(200, EVENTS, b"data: 1\n\ndata: ")
    await reply.write(b"2")
    await reply.finish(b"\n\n")
    head, end = wire.writes
    assert head.endswith(b"\r\n\r\n9\r\ndata: 1\n\n\r\n")
    assert end == b"9\r\ndata: 2\n\n\r\n0\r\n\r\n"


@on_uvloop
async def test_another_stream_that_fails_is_cut_so_that_it_does_not_look_complete() -> None:
    async def handler(_request: Request, reply: Reply) -> None:
        await reply.start(200, [(b"content-type", b"application/json")])
        await reply.write(b"[1,")
        raise RuntimeError

    async with serving(handler) as (_, port), connected(port) as (reader, writer):
        writer.write(post())
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError, ValueError)):
            await read_reply(reader)


@pytest.mark.parametrize("leave", ["abort", "close", "half-close"])
@pytest.mark.parametrize("streaming", [True, False])
@on_uvloop
async def test_a_client_that_leaves_cancels_the_handler(leave: str, streaming: bool) -> None:
    begun, cancelled, told = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def handler(request: Request, reply: Reply) -> None:
        request.disconnect.call(told.set)
        if streaming:
            await reply.start(200, EVENTS)
            await reply.write(b"data: 1\n\n")
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async with serving(handler) as (server, port), connected(port) as (_, writer):
        writer.write(post())
        await begun.wait()
        if leave == "abort":
            writer.transport.abort()
        elif leave == "close":
            writer.close()
        else:
            writer.write_eof()
        await cancelled.wait()
        await told.wait()
        await until(lambda: server.connections == 0)


@on_uvloop
async def test_work_after_a_complete_reply_outlives_the_client() -> None:
    go, booked = asyncio.Event(), asyncio.Event()

    async def handler(_request: Request, reply: Reply) -> None:
        reply.send(200, [], b"done")
        await go.wait()
        booked.set()

    async with serving(handler) as (server, port):
        async with connected(port) as (reader, writer):
            writer.write(post())
            await read_reply(reader)
        await until(lambda: server.connections == 0)
        go.set()
        await booked.wait()
