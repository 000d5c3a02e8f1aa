"""An engine that speaks raw bytes, and a pool of connections to it."""

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

import uvloop

from scopekv.gateway.http import ClientLimits, ClientPool, UpstreamResponse

Engine = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


def on_uvloop(case: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test on the loop that production uses."""

    @functools.wraps(case)
    def run(*args: Any, **values: Any) -> None:
        uvloop.run(case(*args, **values))

    return run


@contextlib.asynccontextmanager
async def pool_to(engine: Engine, limits: ClientLimits | None = None) -> AsyncIterator[ClientPool]:
    """A pool whose engine speaks raw bytes; an error of the engine fails the test."""
    errors: list[BaseException] = []

    async def guarded(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await engine(reader, writer)
        except asyncio.IncompleteReadError:
            pass  # the pool hung up between requests
        except Exception as error:  # noqa: BLE001  raised again below, in the test's own task
            errors.append(error)
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(guarded, "127.0.0.1", 0)
    pool = ClientPool(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", limits=limits)
    try:
        async with asyncio.timeout(60):
            yield pool
    finally:
        await pool.close()
        server.close()
        if errors:
            raise errors[0]


async def read_request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = head.partition(b"content-length: ")[2].split(b"\r\n")[0]
    return head + await reader.readexactly(int(length or b"0"))


async def send(pool: ClientPool, method: str = "POST", body: bytes = b"{}") -> UpstreamResponse:
    return await pool.request(method, "/v1/x?y=1", [(b"x-a", b"b")], body, timeout_seconds=10)


async def whole(pool: ClientPool, method: str = "POST") -> bytes:
    async with await send(pool, method) as answer:
        return await answer.read(1 << 20)
