"""An engine's side of the key broker: what every answer means, and how long it may take.

The real gateway answers in tests/http/test_leases.py; here is a server that answers wrongly.
"""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from scopekv.adapters.broker_client import BrokerClient, BrokerSettings
from scopekv.errors import ConfigError, TicketExpired, TicketInvalid, Unauthenticated, Unavailable
from tests.contracts.certificates import make_certificate

KEY, SECRET = bytes(range(32)), "5e" * 32
LEASE = {
    "scope": "11" * 16,
    "epoch": 2,
    "key": base64.b64encode(KEY).decode(),
    "lease_seconds": 300,
    "retention_seconds": 86_400,
    "account": "22" * 16,
}


@dataclass
class Broker:
    """Answers as it is told; counts connections; forgets one when asked to."""

    status: int = 200
    content: bytes = json.dumps({"leases": [LEASE]}).encode()
    stalls: threading.Event = field(default_factory=threading.Event)
    connections: int = 0
    seen: list[tuple[str, str, bytes]] = field(default_factory=list)
    sockets: list[socket.socket] = field(default_factory=list)
    url: str = ""

    def cut(self) -> None:
        for one in self.sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def running(broker: Broker, certificate: tuple[Path, Path] | None = None) -> Iterator[Broker]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # or an answer waits 40 ms between head and body

        def setup(self) -> None:
            super().setup()
            broker.connections += 1
            broker.sockets.append(self.connection)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            broker.seen.append((self.path, self.headers["Authorization"], body))
            broker.stalls.wait(10) if broker.status == 0 else None
            self.send_response(broker.status or 200)
            self.send_header("Content-Length", str(len(broker.content)))
            self.end_headers()
            self.wfile.write(broker.content)

        def log_message(self, *_: Any) -> None:
            """Silent."""

        def handle(self) -> None:
            with contextlib.suppress(OSError, ValueError):
                super().handle()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    broker.url = f"http{'s' if certificate else ''}://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield broker
    finally:
        broker.stalls.set()
        server.shutdown()
        broker.cut()
        server.server_close()
        thread.join()


@pytest.fixture
def broker() -> Iterator[Broker]:
    with running(Broker()) as made:
        yield made


@pytest.fixture
def secret_path(tmp_path: Path) -> Path:
    path = tmp_path / "instance.key"
    path.write_text(SECRET + "\n")
    path.chmod(0o600)
    return path


@pytest.fixture
def client(broker: Broker, secret_path: Path) -> Iterator[BrokerClient]:
    made = BrokerClient(BrokerSettings(broker.url, secret_path, timeout_seconds=0.5))
    yield made
    made.close()


def test_a_ticket_goes_in_and_leases_come_out(broker: Broker, client: BrokerClient) -> None:
    (lease,) = client.lease("the-ticket")
    assert (lease.scope, lease.epoch, lease.key) == (b"\x11" * 16, 2, KEY)
    assert (lease.lease_seconds, lease.retention_seconds) == (300, 86_400)
    assert lease.account == b"\x22" * 16
    body = json.dumps({"ticket": "the-ticket"}).encode()
    assert broker.seen == [("/v1/scopekv/leases", f"Bearer {SECRET}", body)]


def test_connections_are_kept_and_a_stale_one_is_tried_once_more(
    broker: Broker, client: BrokerClient
) -> None:
    for _ in range(3):
        client.lease("t")
    assert broker.connections == 1
    broker.cut()
    assert client.lease("t")
    assert (broker.connections, len(broker.seen)) == (2, 4)


@pytest.mark.parametrize(
    ("status", "code", "raised"),
    [
        (401, "invalid_api_key", Unauthenticated),
        (403, "bad_signature", TicketInvalid),
        (403, "expired", TicketExpired),
        (403, "not_yet", TicketExpired),
        (403, "something_else", Unavailable),
        (400, "invalid_request", Unavailable),
        (404, "not_found", Unavailable),
        (503, "unavailable", Unavailable),
        (302, "", Unavailable),
    ],
)
def test_each_refusal_has_its_error(
    broker: Broker, client: BrokerClient, status: int, code: str, raised: type[Exception]
) -> None:
    broker.status = status
    broker.content = json.dumps({"error": {"message": "m", "code": code}}).encode()
    with pytest.raises(raised) as refusal:
        client.lease("t")
    assert type(refusal.value) is raised
    assert SECRET not in str(refusal.value)


@pytest.mark.parametrize(
    "change",
    [
        {"key": base64.b64encode(KEY[:-1]).decode()},
        {"key": "no base64!"},
        {"key": None},
        {"scope": "11" * 15},
        {"scope": "zz" * 16},
        {"epoch": -1},
        {"epoch": None},
        {"lease_seconds": 0},
        {"lease_seconds": 10_000},
        {"retention_seconds": 0},
        {"account": ""},
    ],
)
def test_a_lease_out_of_bounds_is_no_lease(
    broker: Broker, client: BrokerClient, change: dict[str, Any]
) -> None:
    broker.content = json.dumps({"leases": [LEASE, LEASE | change]}).encode()
    with pytest.raises(Unavailable) as refusal:
        client.lease("t")
    assert refusal.value.__cause__ is None
    assert str(LEASE["key"]) not in str(refusal.value)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b'{"leases": 5}', b"\xff" * 10])
def test_what_is_no_answer_is_unavailable(
    broker: Broker, client: BrokerClient, content: bytes
) -> None:
    broker.content = content
    with pytest.raises(Unavailable):
        client.lease("t")


def test_an_answer_without_end_is_cut(broker: Broker, client: BrokerClient) -> None:
    broker.content = b" " * (4 << 20)
    with pytest.raises(Unavailable):
        client.lease("t")
    broker.content = Broker().content
    assert client.lease("t")


def test_a_broker_that_hangs_is_unavailable(broker: Broker, secret_path: Path) -> None:
    broker.status = 0
    client = BrokerClient(BrokerSettings(broker.url, secret_path, timeout_seconds=0.1))
    with contextlib.closing(client), pytest.raises(Unavailable, match="TimeoutError"):
        client.lease("t")


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\n\r\n"])
def test_an_answer_that_comes_byte_by_byte_is_cut_in_time(head: bytes, secret_path: Path) -> None:
    """Each byte comes well within the limit, in the headers or in the body."""
    over = threading.Event()

    def drip(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection, contextlib.suppress(OSError):
            connection.sendall(head)
            for _ in range(200):
                connection.sendall(b"X")
                if over.wait(0.02):
                    break

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=drip, args=(server,))
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        client = BrokerClient(BrokerSettings(url, secret_path, timeout_seconds=0.2))
        with pytest.raises(Unavailable, match="TimeoutError"):
            client.lease("t")
        over.set()
        thread.join()


@pytest.mark.parametrize("url", ["htps://user:hunter2@host", "http://user:hunter2@host/?a=b"])
def test_no_error_repeats_an_address(url: str, secret_path: Path) -> None:
    with pytest.raises(ConfigError) as refusal:
        BrokerClient(BrokerSettings(url, secret_path))
    assert "hunter2" not in str(refusal.value)


def test_nobody_there_is_unavailable(secret_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}"
    with pytest.raises(Unavailable, match="ConnectionRefusedError"):
        BrokerClient(BrokerSettings(url, secret_path)).lease("t")


def test_tls_is_checked(tmp_path: Path, secret_path: Path) -> None:
    ca, key = make_certificate(tmp_path)
    with running(Broker(), (ca, key)) as broker:
        client = BrokerClient(BrokerSettings(broker.url, secret_path, ca_file=ca))
        assert client.lease("t")
        client.close()
        with pytest.raises(Unavailable, match="SSLCertVerificationError"):
            BrokerClient(BrokerSettings(broker.url, secret_path)).lease("t")
        assert len(broker.seen) == 1, "no secret went to a stranger"


def test_the_secret_is_read_anew_and_must_be_private(
    broker: Broker, client: BrokerClient, secret_path: Path
) -> None:
    secret_path.write_text("aa" * 32)
    client.lease("t")
    assert broker.seen[-1][1] == "Bearer " + "aa" * 32
    secret_path.chmod(0o644)
    with pytest.raises(Unavailable, match="chmod 600"):
        client.lease("t")
    with pytest.raises(ConfigError, match="chmod 600"):
        BrokerClient(BrokerSettings(broker.url, secret_path))
