"""Kept connections on which something came that it should not have."""

import asyncio

import pytest

from scopekv.errors import Unavailable
from scopekv.gateway.http import ClientLimits
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
