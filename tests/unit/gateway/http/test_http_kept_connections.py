"""Connections to engines on which something came that should not have."""

import asyncio
import contextlib

import pytest

from scopekv.errors import Unavailable
from scopekv.gateway.http import ClientLimits
from scopekv.gateway.http.client import Busy
from tests.unit.gateway.http.engine_socket import OK, pool_to, read_request, whole
from tests.unit.gateway.http.sockets import on_uvloop, until


@on_uvloop
async def test_an_answer_that_had_begun_is_not_asked_for_again() -> None:
    """It may have been run: GET is safe by its name alone."""
    calls = 0

    async def engine(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal calls
        while True:
            await read_request(reader)
            calls += 1
            if calls == 2:
                writer.write(b"HTTP/1.1 200 ")
                await writer.drain()
                return
            writer.write(OK)

    async with pool_to(engine) as pool:
        assert await whole(pool, "GET") == b"ok"
        with pytest.raises(Unavailable):
            await whole(pool, "GET")
    assert calls == 2


@pytest.mark.parametrize("unasked", [OK, OK[:20], b"\r\n", b"x"])
@on_uvloop
async def test_bytes_that_nobody_asked_for_end_the_connection(unasked: bytes) -> None:
    """Half of them now and half after the next request would be its answer."""
    connections = 0
    more = asyncio.Event()

    async def engine(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await read_request(reader)
        writer.write(OK)
        await more.wait()
        if connections == 1:
            writer.write(unasked)
        await read_request(reader)
        writer.write(OK)

    async with pool_to(engine, ClientLimits(idle_seconds=3600)) as pool:
        assert await whole(pool) == b"ok"
        assert pool.open == 1
        more.set()
        await until(lambda: pool.open == 0)
        assert await whole(pool) == b"ok"
        assert connections == 2


@pytest.mark.parametrize("line", [b"x: y\r\n", b"x" * 100])
@on_uvloop
async def test_a_head_without_end_is_given_up_before_its_time(line: bytes) -> None:
    async def engine(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\n")
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(line * 100)
                await writer.drain()

    async with pool_to(engine) as pool:
        with pytest.raises(Unavailable, match="head is over"):
            await whole(pool)
        await until(lambda: pool.open == 0)


@on_uvloop
async def test_connections_that_are_being_made_count_as_well() -> None:
    async def engine(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await read_request(reader)
            writer.write(OK)

    async with pool_to(engine, ClientLimits(connections_max=2)) as pool:
        answers = await asyncio.gather(*(whole(pool) for _ in range(5)), return_exceptions=True)
        assert answers == [b"ok", b"ok", *answers[2:]]
        assert [type(one) for one in answers[2:]] == [Busy] * 3
        assert pool.open == 2
        assert await whole(pool) == b"ok"
