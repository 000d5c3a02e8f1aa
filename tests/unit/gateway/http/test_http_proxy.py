"""Server and client together, as the gateway uses them: cases R7, R8, R9 and R12, and TLS."""

import asyncio
import contextlib
import datetime
import ipaddress
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from scopekv.errors import Misuse
from scopekv.gateway.http import (
    ClientPool,
    Failure,
    Handler,
    Reply,
    Request,
    Response,
    Server,
    end_to_end,
)
from scopekv.gateway.http.messages import set_no_delay
from scopekv.gateway.http.requests import split_target
from tests.unit.gateway.http.sockets import on_uvloop

EVENTS = [(b"content-type", b"text/event-stream")]
GET = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


def hide(error: Exception) -> Failure:
    return Failure(502, f"hidden {type(error).__name__}", "server_error", "instance_lost")


def forward(pool: ClientPool) -> Handler:
    async def handler(request: Request, reply: Reply) -> None:
        headers = end_to_end(request.headers)
        async with await pool.request(
            request.method, request.path, headers, request.body, timeout_seconds=10
        ) as answer:
            await reply.start(answer.status, end_to_end(answer.headers))
            async for chunk in answer.stream():
                await reply.write(chunk)
            await reply.finish()

    return handler


@contextlib.asynccontextmanager
async def gateway_to(
    engine: Handler, tls: tuple[ssl.SSLContext, ssl.SSLContext] | None = None
) -> AsyncIterator[tuple[int, Server]]:
    """A gateway's port and the engine's server behind it."""
    engine_server = Server(engine, error_map=hide)
    port = await engine_server.start("127.0.0.1", 0, tls=tls[0] if tls else None)
    scheme = "https" if tls else "http"
    pool = ClientPool(f"{scheme}://127.0.0.1:{port}", tls=tls[1] if tls else None)
    gateway = Server(forward(pool), error_map=hide)
    try:
        async with asyncio.timeout(60):
            yield await gateway.start("127.0.0.1", 0), engine_server
    finally:
        await gateway.close(grace_seconds=0)
        await pool.close()
        await engine_server.close(grace_seconds=0)


async def exchange(port: int, data: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    answer = await reader.read()
    writer.transport.abort()
    return answer


@pytest.mark.parametrize("leave_after_first_event", [True, False])
@on_uvloop
async def test_a_client_that_leaves_stops_the_engine(leave_after_first_event: bool) -> None:
    begun, stopped = asyncio.Event(), asyncio.Event()

    async def engine(_request: Request, reply: Reply) -> None:
        try:
            if leave_after_first_event:
                await reply.start(200, EVENTS)
                await reply.write(b"data: 1\n\n")
            begun.set()
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async with gateway_to(engine) as (port, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GET)
        await begun.wait()
        if leave_after_first_event:
            await reader.readuntil(b"data: 1\n\n")
        writer.close()
        await stopped.wait()


@on_uvloop
async def test_an_engine_that_dies_in_mid_stream_ends_in_an_error_event_after_one_call() -> None:
    calls = 0

    async def engine(_request: Request, reply: Reply) -> None:
        nonlocal calls
        calls += 1
        await reply.start(200, [(b"content-type", b"application/octet-stream"), *EVENTS])
        await reply.write(b'data: {"id": 0}\n\ndata: {"i')
        raise SystemError("killed")

    async def dying(request: Request, reply: Reply) -> None:
        try:
            await engine(request, reply)
        except SystemError:
            raise asyncio.CancelledError from None  # the server cuts the connection, no more

    async with gateway_to(dying) as (port, _):
        answer = await exchange(port, GET)
    assert b'data: {"id": 0}\n\n' in answer
    assert b'data: {"i' + b"\n" not in answer
    assert b'data: {"error": {"message": "hidden Unavailable"' in answer
    assert answer.endswith(b"\r\n0\r\n\r\n")
    assert calls == 1


@on_uvloop
async def test_a_slow_client_slows_the_engine_and_loses_nothing() -> None:
    written = 0

    async def engine(_request: Request, reply: Reply) -> None:
        nonlocal written
        await reply.start(200, [])
        for _ in range(600):
            await reply.write(b"x" * 50_000)
            written += 50_000
        await reply.finish()

    async with gateway_to(engine) as (port, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=65536)
        writer.write(GET)
        before = -1
        while before != written or not written:  # until the engine stands still
            before = written
            await asyncio.sleep(0.05)
        assert written < 30_000_000
        answer = await reader.read()
        writer.transport.abort()
    assert answer.count(b"x") >= 30_000_000


def make_certificate(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "engine")])
    now = datetime.datetime.now(datetime.UTC)
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(names, critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (folder / "cert.pem").write_bytes(certificate.public_bytes(pem))
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "key.pem").write_bytes(secret)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return server, ssl.create_default_context(cafile=str(folder / "cert.pem"))


@on_uvloop
async def test_https_to_the_engine_and_a_certificate_that_nobody_vouches_for(
    tmp_path: Path,
) -> None:
    async def engine(_request: Request, reply: Reply) -> None:
        reply.send(200, [], b"~" * 120_000)

    server, client = make_certificate(tmp_path)
    async with gateway_to(engine, (server, client)) as (port, _):
        for _ in range(2):
            assert (await exchange(port, GET)).count(b"~") == 120_000
    async with gateway_to(engine, (server, ssl.create_default_context())) as (port, _):
        assert b"hidden NotSent" in await exchange(port, GET)


@on_uvloop
async def test_small_writes_are_not_delayed() -> None:
    server = Server(lambda _request, _reply: asyncio.sleep(0))
    port = await server.start("127.0.0.1", 0)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_connection(asyncio.Protocol, "127.0.0.1", port)
    set_no_delay(transport)
    connected = transport.get_extra_info("socket")
    assert connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
    transport.abort()
    await server.close(grace_seconds=0)


def test_only_end_to_end_headers_pass() -> None:
    headers = [
        (b"connection", b"close, X-Hop"),
        (b"x-hop", b"1"),
        (b"te", b"trailers"),
        (b"content-length", b"3"),
        (b"x-end", b"2"),
        (b"authorization", b"3"),
    ]
    assert end_to_end(headers) == [(b"x-end", b"2"), (b"authorization", b"3")]


@pytest.mark.parametrize(
    ("target", "split"),
    [
        (b"/a/b?c=d?e", ("/a/b", "c=d?e")),
        (b"/", ("/", "")),
        (b"http://host:80/a?b", ("/a", "b")),
        (b"http://host", ("/", "")),
        (b"//host/a", ("//host/a", "")),
        (b"/a%2fb", ("/a%2fb", "")),
        (b"*", None),
        (b"host:443", None),
        (b"ftp://a/", None),
        (b"/\xff", None),
    ],
)
def test_a_target_splits_into_path_and_query(target: bytes, split: tuple[str, str] | None) -> None:
    assert split_target(target) == split


def test_a_failure_is_no_success() -> None:
    assert Response(200, [], b"").status == 200
    with pytest.raises(Misuse):
        Failure(200, "fine", "a", "b")
