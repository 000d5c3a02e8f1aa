"""Object stores when the world fails: dead, hanging and slow servers, killed writers."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from urllib.parse import urlsplit, urlunsplit

import pytest

from scopekv.adapters.objects import open_store
from scopekv.errors import Unavailable
from scopekv.ports import ObjectKey, ObjectStat, ObjectStore
from tests.contracts.object_servers import S3Server, Servers, ValkeyServers, until, works
from tests.contracts.test_object_stores import BLOCK_BYTES, A, B, every_call, key_in, read

WRITER = """
import sys
from scopekv.adapters.objects import open_store
from scopekv.ports import ObjectKey
store = open_store(sys.argv[1])
print("ready", flush=True)
for number in range(100_000):
    body = bytes([number % 251]) * 4_000_000
    store.put(ObjectKey(sys.argv[2], f"n{number % 7}"), [body[:1_000_000], body[1_000_000:]])
"""


def back_to_work(store: ObjectStore, key: ObjectKey) -> None:
    """A server that hung may still do what it was asked, after this began: so put it again."""

    def keeps_what_is_put() -> bool:
        try:
            store.put(key, [b"back"])
            return read(store, key) == b"back" and [stat.key for stat in store.objects()] == [key]
        except Unavailable:
            return False

    until(keeps_what_is_put, "the store is used again")


@pytest.mark.timeout(120)
def test_a_dead_server_is_unavailable_until_it_is_back(servers: Servers) -> None:
    store = open_store(servers.url(), call_seconds=servers.call_seconds)
    key = key_in(A)
    store.put(key, [b"x"])
    servers.kill()
    try:
        for call in every_call(store, key):
            with pytest.raises(Unavailable) as raised:
                call()
            assert "test-" not in str(raised.value)
    finally:
        servers.start()
    back_to_work(store, key)
    store.close()


@pytest.mark.timeout(120)
def test_a_store_that_is_down_at_the_start_is_used_when_it_is_up(servers: Servers) -> None:
    url = servers.url()
    servers.kill()
    try:
        store = open_store(url, call_seconds=servers.call_seconds)
        with pytest.raises(Unavailable):
            store.get(key_in(A), memoryview(bytearray(1)))
    finally:
        servers.start()
    back_to_work(store, key_in(B))
    store.close()


@pytest.mark.timeout(120)
def test_a_hanging_server_is_unavailable_in_time(servers: Servers) -> None:
    store = open_store(servers.url(), call_seconds=servers.call_seconds)
    key = key_in(A)
    store.put(key, [b"x"])
    servers.send(signal.SIGSTOP)
    try:
        for call in every_call(store, key):
            with pytest.raises(Unavailable):
                call()
    finally:
        servers.send(signal.SIGCONT)
    back_to_work(store, key)
    store.close()


class SlowProxy:
    """A port whose answers trickle: never silent for long, and never done."""

    def __init__(self, port: int, bytes_per_second: int) -> None:
        self._far, self._pace = port, bytes_per_second
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._ends: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._done = threading.Event()
        self._run(self._accept)

    def _run(self, target: Callable[..., None], *arguments: object) -> None:
        self._threads.append(threading.Thread(target=target, args=arguments))
        self._threads[-1].start()

    def _accept(self) -> None:
        while True:
            near, _ = self._listener.accept()
            self._ends.append(near)
            if self._done.is_set():
                return
            far = socket.create_connection(("127.0.0.1", self._far))
            self._ends.append(far)
            self._run(self._pump, near, far, 65536, 0.0)
            self._run(self._pump, far, near, self._pace // 20, 0.05)

    def _pump(
        self, source: socket.socket, target: socket.socket, share: int, pause_seconds: float
    ) -> None:
        with contextlib.suppress(OSError):
            while not self._done.is_set() and (chunk := source.recv(share)):
                target.sendall(chunk)
                self._done.wait(pause_seconds)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._done.set()
        socket.create_connection(("127.0.0.1", self.port)).close()
        self._threads[0].join()
        for end in self._ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for end in (self._listener, *self._ends):
            end.close()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", ["valkey_server", "s3_server"])
def test_a_trickling_server_is_unavailable_in_time(
    request: pytest.FixtureRequest, kind: str
) -> None:
    """The deadline is over the whole call, not over the wait for the next byte (T6)."""
    servers: Servers = request.getfixturevalue(kind)
    url, key = servers.url(), key_in(A)
    direct = open_store(url)
    direct.put(key, [os.urandom(BLOCK_BYTES)])
    port = servers.port if isinstance(servers, S3Server) else servers.ports[0]
    with contextlib.closing(SlowProxy(port, 20_000)) as slow:
        store = open_store(url.replace(f":{port}", f":{slow.port}"), call_seconds=1)
        with pytest.raises(Unavailable):
            store.get(key, memoryview(bytearray(BLOCK_BYTES)))
        store.close()
    assert direct.get(key, memoryview(bytearray(BLOCK_BYTES))) == BLOCK_BYTES
    direct.close()


@pytest.mark.timeout(120)
def test_one_hanging_server_of_a_cluster_takes_only_its_share(
    valkey_cluster: ValkeyServers,
) -> None:
    store = open_store(valkey_cluster.url(), call_seconds=0.5)
    keys = [key_in(A) for _ in range(30)]
    for key in keys:
        store.put(key, [b"x"])
    valkey_cluster.send_to_last(signal.SIGSTOP)
    try:
        answered = [works(lambda key=key: read(store, key)) for key in keys]  # type: ignore[misc]
        assert any(answered)
        assert not all(answered)
        with pytest.raises(Unavailable):
            list(store.objects())  # half a listing would pass for a whole one
        with pytest.raises(Unavailable):
            store.delete(keys)
    finally:
        valkey_cluster.send_to_last(signal.SIGCONT)
    until(lambda: works(lambda: store.delete(keys)), "the cluster is whole again")
    assert list(store.objects()) == []
    store.close()


@pytest.mark.parametrize("seconds", [0.05, 0.11, 0.2, 0.37])
def test_a_writer_killed_in_the_middle_leaves_whole_objects(
    object_url: str, seconds: float
) -> None:
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, object_url, A], stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    with writer.stdout:
        assert writer.stdout.readline() == "ready\n"
    time.sleep(seconds)
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    store = open_store(object_url)
    buffer = memoryview(bytearray(4_000_000))
    for stat in list(store.objects()):
        assert store.get(stat.key, buffer) == stat.size_bytes == 4_000_000
        assert bytes(buffer).count(buffer[0]) == 4_000_000
    store.put(key_in(A), [b"and on"])
    store.close()


@pytest.mark.parametrize("kind", ["valkey_server", "valkey_cluster", "s3_server"])
def test_wrong_credentials_are_unavailable_and_stay_secret(
    request: pytest.FixtureRequest, kind: str
) -> None:
    servers: Servers = request.getfixturevalue(kind)
    parts = urlsplit(servers.url())
    wrong = urlunsplit(
        parts._replace(
            netloc=parts.netloc.replace("test-password-41aa", "sesame"),
            query=parts.query.replace("test-secret-9f2c", "sesame"),
        )
    )
    assert "sesame" in wrong
    store = open_store(wrong)
    for call in every_call(store, key_in(A)):
        with pytest.raises(Unavailable) as raised:
            call()
        shown = repr((raised.value, raised.value.__cause__))
        assert not any(word in shown for word in ("sesame", "test-access", A))
        assert raised.value.__suppress_context__
    store.close()


def test_a_full_valkey_is_unavailable(valkey_server: ValkeyServers) -> None:
    store = open_store(valkey_server.url())
    key = key_in(A)
    store.put(key, [b"x"])
    valkey_server.ask(valkey_server.ports[0], "CONFIG SET maxmemory 1mb")
    try:
        with pytest.raises(Unavailable, match="full"):
            store.put(key_in(A), [b"x" * BLOCK_BYTES])
        assert read(store, key) == b"x"
    finally:
        valkey_server.ask(valkey_server.ports[0], "CONFIG SET maxmemory 0")
    store.put(key, [b"again"])
    store.close()


def test_valkey_forgets_by_itself_after_the_retention(valkey_server: ValkeyServers) -> None:
    store = open_store(valkey_server.url())
    key = ObjectKey(A.replace("r86400-", "r1-"), "name")
    store.put(key, [b"x"])
    assert [stat.key for stat in store.objects()] == [key]
    until(lambda: not store.present([key]), "the object expires")
    assert list(store.objects()) == []
    store.close()


def test_an_object_in_valkey_whose_time_was_taken_away_is_listed_as_old(
    valkey_server: ValkeyServers,
) -> None:
    """By PERSIST, or a restore without times: out of listings no purge or retention reaches it."""
    store = open_store(valkey_server.url())
    key = key_in(A)
    store.put(key, [b"kept for ever"])
    valkey_server.ask(valkey_server.ports[0], f"PERSIST scopekv:{key.chain}:{key.name}")
    assert list(store.objects(A)) == [ObjectStat(key, 13, 0.0)]
    assert store.delete([key]) == 1
    assert list(store.objects(A)) == []
    store.close()


def test_a_missing_bucket_is_unavailable(s3_server: S3Server) -> None:
    store = open_store(s3_server.url("scopekv-no-such-bucket"))
    for call in (lambda: read(store, key_in(A)), lambda: list(store.objects())):
        with pytest.raises(Unavailable, match="no such bucket"):
            call()
    store.close()
