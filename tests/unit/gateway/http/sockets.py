"""Real loopback sockets between a server and what tests say to it."""

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import uvloop

from scopekv.gateway.http import Failure, Handler, Reply, Request, Server, ServerLimits

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
