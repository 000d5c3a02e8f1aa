"""The server against well-behaved and leaving clients, over real loopback sockets."""

import asyncio
import json

from scopekv.gateway.http import Reply, Request
from tests.unit.gateway.http.sockets import (
    connected,
    echo,
    on_uvloop,
    post,
    read_reply,
    serving,
)


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
