"""The client against an engine that is slow, stale, wrong, dying or gone, over real sockets."""

import asyncio
import contextlib
import socket

import pytest

from scopekv.errors import ConfigError, Misuse, Unavailable
from scopekv.gateway.http import ClientLimits, ClientPool, NotSent
from tests.unit.gateway.http.engine_socket import (
    CHUNKED,
    OK,
    pool_to,
    read_request,
    send,
    whole,
)
from tests.unit.gateway.http.sockets import on_uvloop


@on_uvloop
async def test_requests_share_a_connection_and_own_their_framing() -> None:
    seen: list[bytes] = []
    connections = 0

    async def engine(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        while True:
            seen.append(await read_request(reader))
            writer.write(OK)

    async with pool_to(engine) as pool:
        headers = [(b"content-length", b"9"), (b"transfer-encoding", b"chunked"), (b"host", b"h")]
        headers += [(b"expect", b"100-continue"), (b"connection", b"close")]
        for _ in range(3):
            async with await pool.request(
                "POST", "/p", headers, b"abc", timeout_seconds=10
            ) as answer:
                assert (answer.status, await answer.read(2)) == (200, b"ok")
        assert pool.idle == 1
    assert connections == 1
    assert len(seen) == 3
    assert seen[0].count(b"content-length: 3\r\n") == 1
    for not_ours in (b"chunked", b"expect", b"connection"):
        assert not_ours not in seen[0]
    assert seen[0].count(b"host: 127.0.0.1:") == 1


@on_uvloop
async def test_a_connection_that_the_engine_closed_is_found_before_use() -> None:
    calls = 0
    closed = asyncio.Event()

    async def engine(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal calls
        await read_request(reader)
        calls += 1
        writer.write(OK)
        await writer.drain()
        writer.close()
        closed.set()

    async with pool_to(engine) as pool:
        for number in range(5):
            assert await whole(pool) == b"ok"
            assert calls == number + 1
            await closed.wait()
            closed.clear()


@pytest.mark.parametrize(("method", "calls_expected"), [("POST", 2), ("GET", 3)])
@on_uvloop
async def test_only_a_safe_request_goes_out_again_when_a_kept_connection_dies(
    method: str, calls_expected: int
) -> None:
    calls = 0

    async def engine(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal calls
        while True:
            await read_request(reader)
            calls += 1
            if calls == 2:
                return  # it may have run; nobody can know
            writer.write(OK)

    async with pool_to(engine) as pool:
        assert await whole(pool, method) == b"ok"
        if method == "POST":
            with pytest.raises(Unavailable) as caught:
                await whole(pool, method)
            assert not isinstance(caught.value, NotSent)
        else:
            assert await whole(pool, method) == b"ok"
    assert calls == calls_expected


@on_uvloop
async def test_a_fresh_connection_that_dies_is_never_tried_again() -> None:
    calls = 0

    async def engine(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        nonlocal calls
        await read_request(reader)
        calls += 1

    async with pool_to(engine) as pool:
        with pytest.raises(Unavailable):
            await whole(pool, "GET")
    assert calls == 1


@on_uvloop
async def test_a_refused_connection_is_known_not_to_have_been_sent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    pool = ClientPool(f"http://127.0.0.1:{port}")
    with pytest.raises(NotSent):
        await whole(pool)
    await pool.close()
    with pytest.raises(Misuse):
        await whole(pool)


@pytest.mark.parametrize(
    "answer",
    [
        b"SMTP ready\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 100_000,
        b"HTTP/1.1 200 OK\r\ncontent-le",
        b"",
    ],
)
@on_uvloop
async def test_an_answer_that_is_not_http_is_unavailable(answer: bytes) -> None:
    async def engine(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(answer)
        writer.write_eof()
        await reader.read()

    async with pool_to(engine) as pool:
        with pytest.raises(Unavailable):
            await whole(pool)
        assert pool.idle == 0


@pytest.mark.parametrize(
    "head",
    [
        CHUNKED + b"2\r\nok\r\n",
        CHUNKED + b"1\r\no\r\n1\r\nk\r\nno chunk\r\n",
        OK.replace(b": 2", b": 3"),
    ],
)
@on_uvloop
async def test_a_body_that_is_cut_gives_what_came_and_then_unavailable(head: bytes) -> None:
    async def engine(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(head)
        await writer.drain()

    async with pool_to(engine) as pool, await send(pool) as answer:
        stream = answer.stream()
        assert await anext(stream) == b"ok"
        with pytest.raises(Unavailable):
            await anext(stream)


@pytest.mark.parametrize(
    ("answer", "body", "kept"),
    [
        (
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + OK,
            b"ok",
            1,
        ),
        (b"HTTP/1.1 200 OK\r\n\r\nuntil the end", b"until the end", 0),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b"", 1),
        (OK.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"), b"ok", 0),
        (CHUNKED + b"2;x\r\nok\r\n0\r\nx-trailer: y\r\n\r\n", b"ok", 1),
        (OK + OK, b"ok", 0),  # the second answers nothing: it must not answer the next request
        (OK + b"HTTP/1.1 200", b"ok", 0),
    ],
)
@on_uvloop
async def test_every_way_to_end_an_answer(answer: bytes, body: bytes, kept: int) -> None:
    async def engine(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(answer)
        if b"length" in answer or b"chunked" in answer or b"204" in answer:
            await reader.read()

    async with pool_to(engine) as pool:
        async with await send(pool) as response:
            assert await response.read(100) == body
            assert response.header(b"link") is None
        assert pool.idle == kept


@on_uvloop
async def test_the_answer_to_head_has_no_body() -> None:
    async def engine(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(OK[:-2])
        await reader.read()

    async with pool_to(engine) as pool:
        assert await whole(pool, "HEAD") == b""


@on_uvloop
async def test_an_early_answer_to_a_long_upload_costs_the_connection() -> None:
    async def engine(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Content Too Large\r\ncontent-length: 0\r\n\r\n")
        await asyncio.Event().wait()

    async with pool_to(engine) as pool:
        async with await send(pool, body=b"x" * 50_000_000) as answer:
            assert (answer.status, await answer.read(1)) == (413, b"")
        assert pool.idle == 0


@on_uvloop
async def test_no_answer_in_time_stalls_and_sizes_are_unavailable_and_hang_up() -> None:
    left: list[bytes] = []

    async def engine(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await read_request(reader)
        if b"/begin" in request:
            writer.write(CHUNKED + b"3\r\nabc\r\n")
        with contextlib.suppress(ConnectionError):
            left.append(await reader.read())

    async with pool_to(engine, ClientLimits(stall_seconds=0.05)) as pool:
        with pytest.raises(Unavailable, match="in time"):
            await pool.request("POST", "/silent", [], b"", timeout_seconds=0.05)
        answer = await pool.request("POST", "/begin", [], b"", timeout_seconds=10)
        with pytest.raises(Unavailable, match="nothing for"):
            await answer.read(100)
        answer = await pool.request("POST", "/begin", [], b"", timeout_seconds=10)
        with pytest.raises(Unavailable, match="limit of 2 bytes"):
            await answer.read(2)
        while pool.open:
            await asyncio.sleep(0.001)


@on_uvloop
async def test_a_full_pool_says_so_and_refuses() -> None:
    async def engine(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with pool_to(engine, ClientLimits(connections_max=1)) as pool:
        first = asyncio.create_task(send(pool))
        while not pool.open:
            await asyncio.sleep(0.001)
        with pytest.raises(NotSent, match="limit"):
            await send(pool)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first


@on_uvloop
async def test_line_ends_never_reach_the_wire() -> None:
    pool = ClientPool("http://127.0.0.1:9")
    with pytest.raises(Misuse):
        await pool.request("POST", "/", [(b"a", b"b\r\nc: d")], b"", timeout_seconds=1)
    with pytest.raises(Misuse):
        await pool.request("POST", "/ HTTP/1.1\r\na: b", [], b"", timeout_seconds=1)
    for url in ("ftp://a", "http://", "http://u:p@a", "http://a?b"):
        with pytest.raises(ConfigError):
            ClientPool(url)
