"""Clients that cost a server more than they pay: trickles, floods behind a request, tiny chunks."""

import asyncio
import contextlib
import tracemalloc

from scopekv.gateway.http import Reply, Request, RequestLimits, ServerLimits
from scopekv.gateway.http.requests import RequestParser
from tests.unit.gateway.http.sockets import connected, on_uvloop, read_reply, serving


@on_uvloop
async def test_a_client_that_sends_byte_by_byte_buys_no_time() -> None:
    async def handler(_request: Request, _reply: Reply) -> None:
        raise AssertionError("the head never ends")

    limits = ServerLimits(head_seconds=0.2)
    async with serving(handler, limits) as (_, port), connected(port) as (reader, writer):
        answer = asyncio.create_task(reader.read())
        writer.write(b"GET / HTTP/1.1\r\nX: ")
        for _ in range(200):  # of 10 s in all
            if answer.done():
                break
            with contextlib.suppress(ConnectionError):
                writer.write(b"a")
                await writer.drain()
            await asyncio.sleep(0.05)
        assert answer.done()
        assert (await answer).startswith(b"HTTP/1.1 408 ")


@on_uvloop
async def test_what_comes_behind_a_request_is_not_read_without_end() -> None:
    go = asyncio.Event()

    async def handler(_request: Request, reply: Reply) -> None:
        await go.wait()
        reply.send(200, [], b"first")

    async with serving(handler) as (_, port), connected(port) as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" + b"x" * (64 << 20))
        before = -1
        while before != (left := writer.transport.get_write_buffer_size()):  # until it stands still
            before = left
            await asyncio.sleep(0.1)
        assert left > 32 << 20
        go.set()
        assert (await read_reply(reader))[2] == b"first"


def test_a_body_in_tiny_chunks_takes_about_its_own_size() -> None:
    parser, pairs = RequestParser(RequestLimits()), 1 << 17
    parser.feed(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
    chunks = b"".join(b"2\r\n%02x\r\n" % (number % 256) for number in range(1024))
    tracemalloc.start()
    try:
        for _ in range(pairs // 1024):
            parser.feed(chunks)
        parser.feed(b"0\r\n\r\n")
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    (request,) = parser.ready
    assert request.body == b"".join(b"%02x" % (number % 256) for number in range(pairs))
    assert peak_bytes < 4 * len(request.body)


@on_uvloop
async def test_what_no_header_may_hold_is_sent_to_nobody() -> None:
    async def handler(request: Request, reply: Reply) -> None:
        reply.send(200, [(b"x", b"a" + request.body + b"b")], b"")

    async with serving(handler) as (_, port), connected(port) as (reader, writer):
        for what in (b"\0", b"\r", b"\n"):
            writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n" + what)
            status, head, _ = await read_reply(reader)
            assert status == 500
            assert b"x: a" not in head


@on_uvloop
async def test_so_many_requests_at_once_and_no_more_wait_behind_one() -> None:
    limits = ServerLimits(request=RequestLimits(pipelined_max=3))
    seen = 0

    async def handler(_request: Request, reply: Reply) -> None:
        nonlocal seen
        seen += 1
        reply.send(200, [], b"")

    async with serving(handler, limits) as (_, port), connected(port) as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" * 5)
        statuses = [(await read_reply(reader))[0] for _ in range(4)]
        assert statuses == [200, 200, 200, 429]
        assert await reader.read() == b""
    assert seen == 3


@on_uvloop
async def test_an_answer_that_ends_the_connection_arrives_though_more_was_sent() -> None:
    """Closing with unread bytes resets the connection, and what is on its way is lost."""
    go, body = asyncio.Event(), b"x" * (4 << 20)

    async def handler(_request: Request, reply: Reply) -> None:
        await go.wait()
        reply.send(200, [], body)

    async with serving(handler) as (_, port), connected(port) as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n" + b"y" * (8 << 20))
        before = -1
        while before != (left := writer.transport.get_write_buffer_size()):
            before = left
            await asyncio.sleep(0.05)
        assert left > 0, "the server does not read on"
        go.set()
        status, _, answer = await read_reply(reader)
        assert (status, len(answer)) == (200, len(body))
