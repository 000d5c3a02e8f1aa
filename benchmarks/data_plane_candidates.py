"""The engine stand-in and the proxies that `data_plane.py` compares; each is run as a process.

    python benchmarks/data_plane_candidates.py NAME PORT ENGINE_URL

All pass a POST on and give back either the whole reply or its event stream, chunk by chunk.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from typing import Any, cast

import uvloop

from scopekv.gateway.http import ClientPool, Reply, Request, Server, end_to_end

EVENTS = 64
EVENT = b'data: {"choices":[{"index":0,"delta":{"content":" word"},"finish_reason":null}]}\n\n'
JSON_TYPE = (b"content-type", b"application/json")
Asgi = Callable[[MutableMapping[str, Any], Any, Any], Coroutine[Any, Any, None]]


async def engine(request: Request, reply: Reply) -> None:
    """1 KB at once, or 64 events, each in a write of its own, the first one 2 ms before the rest,
    so that the time to it is not a fight of three processes for two cores.
    """
    if request.path == "/whole":
        reply.send(200, [JSON_TYPE], b"x" * 1024)
        return
    await reply.start(200, [(b"content-type", b"text/event-stream")])
    for number in range(EVENTS):
        await reply.write(EVENT)
        await asyncio.sleep(0 if number else 0.002)
    await reply.finish()


async def serve_own(handler: Callable[[Request, Reply], Awaitable[None]], port: int) -> None:
    await Server(handler).start("127.0.0.1", port)
    await asyncio.Event().wait()


class Relay(asyncio.Protocol):
    """Copies bytes to its partner and looks at nothing: what the loop and the kernel cost alone."""

    def __init__(self, partner: asyncio.Transport | None, engine_port: int) -> None:
        self.partner, self.engine_port, self.early = partner, engine_port, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        if self.partner is None:
            self.connecting = asyncio.get_running_loop().create_task(self.connect())

    async def connect(self) -> None:
        loop = asyncio.get_running_loop()
        self.partner, _ = await loop.create_connection(
            lambda: Relay(self.transport, 0), "127.0.0.1", self.engine_port
        )
        self.partner.write(self.early)

    def data_received(self, data: bytes) -> None:
        if self.partner is None:
            self.early += data
        else:
            self.partner.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        if self.partner is not None:
            self.partner.close()


async def serve_relay(port: int, base: str) -> None:
    engine_port = int(base.rpartition(":")[2])
    loop = asyncio.get_running_loop()
    await loop.create_server(lambda: Relay(None, engine_port), "127.0.0.1", port)
    await asyncio.Event().wait()


def own_handler(base: str) -> Callable[[Request, Reply], Awaitable[None]]:
    pool = ClientPool(base)

    async def handler(request: Request, reply: Reply) -> None:
        headers = end_to_end(request.headers)
        async with await pool.request(
            request.method, request.path, headers, request.body, timeout_seconds=30.0
        ) as answer:
            if (answer.header(b"content-type") or b"").startswith(b"text/event-stream"):
                await reply.start(answer.status, end_to_end(answer.headers))
                async for chunk in answer.stream():
                    await reply.write(chunk)
                await reply.finish()
            else:
                body = await answer.read(1 << 24)
                reply.send(answer.status, end_to_end(answer.headers), body)

    return handler


async def asgi_body(receive: Callable[[], Awaitable[dict[str, Any]]]) -> bytes:
    parts = []
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)


def asgi_own(base: str) -> Asgi:
    pool = ClientPool(base)

    async def app(scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        body = await asgi_body(receive)
        headers = end_to_end(list(scope["headers"]))
        async with await pool.request(
            scope["method"], scope["path"], headers, body, timeout_seconds=30.0
        ) as answer:
            kept = end_to_end(answer.headers)
            if (answer.header(b"content-type") or b"").startswith(b"text/event-stream"):
                await send(
                    {"type": "http.response.start", "status": answer.status, "headers": kept}
                )
                async for chunk in answer.stream():
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
                await send({"type": "http.response.body", "body": b""})
                return
            whole = await answer.read(1 << 24)
            kept.append((b"content-length", b"%d" % len(whole)))
            await send({"type": "http.response.start", "status": answer.status, "headers": kept})
            await send({"type": "http.response.body", "body": whole})

    return app


def asgi_aiohttp(base: str) -> Asgi:
    import aiohttp

    sessions: list[aiohttp.ClientSession] = []

    async def app(scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        if not sessions:
            sessions.append(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))
        body = await asgi_body(receive)
        headers = {"content-type": "application/json"}
        async with sessions[0].post(base + scope["path"], data=body, headers=headers) as answer:
            kept = [(b"content-type", answer.headers["content-type"].encode())]
            if kept[0][1].startswith(b"text/event-stream"):
                await send(
                    {"type": "http.response.start", "status": answer.status, "headers": kept}
                )
                async for chunk in answer.content.iter_any():
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
                await send({"type": "http.response.body", "body": b""})
                return
            whole = await answer.read()
            kept.append((b"content-length", b"%d" % len(whole)))
            await send({"type": "http.response.start", "status": answer.status, "headers": kept})
            await send({"type": "http.response.body", "body": whole})

    return app


def starlette_aiohttp(base: str) -> Asgi:
    import aiohttp
    from starlette.applications import Starlette
    from starlette.requests import Request as StarletteRequest
    from starlette.responses import Response, StreamingResponse
    from starlette.routing import Route

    sessions: list[aiohttp.ClientSession] = []

    async def proxy(request: StarletteRequest) -> Response:
        if not sessions:
            sessions.append(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))
        headers = {"content-type": "application/json"}
        url = base + request.url.path
        answer = await sessions[0].post(url, data=await request.body(), headers=headers)
        media_type = answer.headers["content-type"]
        if media_type.startswith("text/event-stream"):
            chunks = answer.content.iter_any()
            return StreamingResponse(chunks, answer.status, media_type=media_type)
        return Response(await answer.read(), answer.status, media_type=media_type)

    return Starlette(routes=[Route("/{path:path}", proxy, methods=["POST"])])


def serve(name: str, port: int, base: str) -> None:
    """Run one candidate, or the engine stand-in, until killed."""
    if name == "engine":
        uvloop.run(serve_own(engine, port))
    elif name == "own server + own client":
        uvloop.run(serve_own(own_handler(base), port))
    elif name.startswith("byte relay"):
        uvloop.run(serve_relay(port, base))
    elif name == "granian ASGI + own client":
        from granian.constants import Interfaces  # type: ignore[import-not-found]
        from granian.server.embed import (  # type: ignore[import-not-found]
            Server as Granian,
        )

        server = Granian(asgi_own(base), port=port, interface=Interfaces.ASGINL, log_enabled=False)
        uvloop.run(server.serve())
    else:
        import uvicorn

        makers = {"starlette + aiohttp": starlette_aiohttp, "uvicorn ASGI + aiohttp": asgi_aiohttp}
        app = makers.get(name, asgi_own)(base)
        uvicorn.run(app, port=port, log_level="error", access_log=False, lifespan="off")


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]), sys.argv[3])
