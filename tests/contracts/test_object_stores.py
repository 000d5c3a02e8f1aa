"""What every object store keeps: directory, Valkey, a Valkey cluster, S3, all of them real."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from scopekv.adapters.objects import open_store
from scopekv.core.chains import Link, folder
from scopekv.core.scopes import ScopeId
from scopekv.errors import ConfigError, Misuse, Unavailable
from scopekv.ports import ObjectKey, ObjectStore

BLOCK_BYTES = 1_474_560
_NUMBERS = itertools.count(1)


def chain_of(*scopes: int, retention_seconds: int = 86_400) -> str:
    """A folder's name as the program makes it."""
    links = tuple(Link(ScopeId(scope.to_bytes(16, "big")), 1) for scope in scopes)
    name = folder(links, retention_seconds)
    assert name is not None
    return name


def key_in(chain: str) -> ObjectKey:
    return ObjectKey(chain, f"{next(_NUMBERS):040x}")


def read(store: ObjectStore, key: ObjectKey, room: int = 4096) -> bytes | None:
    buffer = memoryview(bytearray(room))
    size_bytes = store.get(key, buffer)
    return None if size_bytes is None else bytes(buffer[:size_bytes])


def fill(store: ObjectStore, keys: Sequence[ObjectKey]) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: store.put(key, [key.name.encode()]), keys))


def every_call(store: ObjectStore, key: ObjectKey) -> list[Callable[[], object]]:
    return [
        lambda: store.put(key, [b"x" * 1000, b"y"]),
        lambda: store.get(key, memoryview(bytearray(4096))),
        lambda: store.present([key]),
        lambda: store.delete([key]),
        lambda: list(store.chains()),
        lambda: list(store.objects()),
        lambda: list(store.objects(key.chain)),
        lambda: store.quarantine(key),
    ]


A, B = chain_of(1), chain_of(1, 2)
LONGEST = chain_of(*range(1, 9), retention_seconds=9_999_999_999)


@pytest.mark.parametrize("chain", [A, B, LONGEST, "probe"])
def test_parts_come_back_as_one(store: ObjectStore, chain: str) -> None:
    body = os.urandom(BLOCK_BYTES)
    key = key_in(chain)
    store.put(key, [body[:32], b"", bytearray(body[32:100]), memoryview(body)[100:]])
    assert read(store, key, BLOCK_BYTES) == body
    assert read(store, key, BLOCK_BYTES + 1) == body
    wide = memoryview(bytearray(BLOCK_BYTES)).cast("B", (10, BLOCK_BYTES // 10))
    assert store.get(key, wide) == BLOCK_BYTES
    assert wide.tobytes() == body


def test_an_empty_object_is_there(store: ObjectStore) -> None:
    key = key_in(A)
    store.put(key, [])
    assert read(store, key) == b""
    assert store.present([key]) == {key}


def test_put_replaces(store: ObjectStore) -> None:
    key = key_in(A)
    for body in (b"first and longer", b"second", b"third, again longer"):
        store.put(key, [body])
        assert read(store, key) == body
    assert [stat.size_bytes for stat in store.objects()] == [19]


def test_absent_is_none_and_no_error(store: ObjectStore) -> None:
    key = key_in(A)
    assert read(store, key) is None
    assert store.present([key]) == frozenset()
    assert store.present([]) == frozenset()
    assert store.delete([key]) == 0
    assert store.delete([]) == 0
    store.quarantine(key)
    assert list(store.objects()) == list(store.objects(A)) == []
    assert list(store.chains()) == []


def test_too_long_for_the_buffer_tells_its_length(store: ObjectStore) -> None:
    key = key_in(A)
    store.put(key, [b"x" * 1000])
    assert store.get(key, memoryview(bytearray(999))) == 1000
    assert store.get(key, memoryview(bytearray(0))) == 1000


def test_present_tells_one_from_another(store: ObjectStore) -> None:
    here = [key_in(chain) for chain in (A, A, B, "probe")]
    away = [key_in(chain) for chain in (A, B, LONGEST)]
    fill(store, here)
    assert store.present(here + away) == frozenset(here)
    many = [key_in(A) for _ in range(200)]
    fill(store, many[:90])
    assert store.present(many) == frozenset(many[:90])
    same_name = ObjectKey(B, here[0].name)
    assert store.present([same_name]) == frozenset()


def test_delete_counts_what_was_there(store: ObjectStore) -> None:
    keys = [key_in(chain) for chain in (A, A, B)]
    kept = key_in(B)
    fill(store, [*keys, kept])
    assert store.delete([*keys, key_in(A)]) == 3
    assert store.delete(keys) == 0
    assert [stat.key for stat in store.objects()] == [kept]
    assert read(store, keys[0]) is None
    fill(store, keys)
    assert store.present(keys) == frozenset(keys)


def test_listings_show_everything_once(store: ObjectStore) -> None:
    """More than one page of S3 and of SCAN."""
    before = time.time()
    many = [key_in(A) for _ in range(1100)]
    few = [key_in(chain) for chain in (B, LONGEST, "probe")]
    fill(store, many + few)
    assert set(store.chains()) == {A, B, LONGEST, "probe"}
    everything = list(store.objects())
    assert sorted(stat.key for stat in everything) == sorted(many + few)
    assert {stat.size_bytes for stat in everything} == {40}
    assert all(before - 5 < stat.stored_at < time.time() + 5 for stat in everything)
    assert sorted(stat.key for stat in store.objects(A)) == sorted(many)
    assert [stat.key for stat in store.objects(B)] == [few[0]]  # A is a prefix of its name
    assert store.present(many + few) == frozenset(many + few)
    assert store.delete(many) == len(many)
    assert set(store.chains()) - {A} == {B, LONGEST, "probe"}


@pytest.mark.parametrize(
    "odd",
    ["", ".", "..", "../x", "a/b", "A", "a b", "a:b", "a*", "a\n", "a\0", "é", "a_b", ".tmp"],
)
def test_odd_names_are_refused_before_they_reach_the_store(store: ObjectStore, odd: str) -> None:
    for key in (ObjectKey(odd, "name"), ObjectKey("chain", odd), ObjectKey("chain", "n" * 44)):
        with pytest.raises(Misuse):
            store.put(key, [b"x"])
        with pytest.raises(Misuse):
            store.get(key, memoryview(bytearray(1)))
        for call in (store.present, store.delete):
            with pytest.raises(Misuse):
                call([key])
        with pytest.raises(Misuse):
            store.quarantine(key)
    with pytest.raises(Misuse):
        list(store.objects(odd))
    assert list(store.objects()) == []


def test_quarantine_takes_it_out_of_sight(store: ObjectStore) -> None:
    keys = [key_in(A) for _ in range(20)]
    fill(store, keys)
    for key in keys:
        store.quarantine(key)
    assert store.present(keys) == frozenset()
    assert read(store, keys[0]) is None
    assert list(store.objects()) == list(store.objects(A)) == []
    store.put(keys[0], [b"whole again"])
    assert read(store, keys[0]) == b"whole again"


def test_readers_never_see_two_writers_mixed(store: ObjectStore) -> None:
    """Each body is one byte repeated, and its length tells which byte."""
    key = key_in(A)
    sizes = {fill: BLOCK_BYTES - 1000 * fill for fill in range(1, 4)}
    store.put(key, [bytes([1]) * sizes[1]])
    done = threading.Event()

    def write(fill: int) -> None:
        body = bytes([fill]) * sizes[fill]
        for _ in range(15):
            store.put(key, [body[:1000], body[1000:]])

    def check() -> int:
        seen = 0
        buffer = memoryview(bytearray(BLOCK_BYTES))
        while not done.is_set() or not seen:
            size_bytes = store.get(key, buffer)
            assert size_bytes in sizes.values()
            assert bytes(buffer[:size_bytes]).count(buffer[0]) == size_bytes == sizes[buffer[0]]
            seen += 1
        return seen

    with ThreadPoolExecutor(5) as pool:
        readers = [pool.submit(check) for _ in range(2)]
        try:
            list(pool.map(write, sizes))
        finally:
            done.set()
        assert all(reader.result() for reader in readers)


def test_a_closed_store_is_unavailable(store: ObjectStore) -> None:
    key = key_in(A)
    store.put(key, [b"x"])
    store.close()
    store.close()
    for call in every_call(store, key):
        with pytest.raises(Unavailable):
            call()


def test_what_is_stored_outlives_the_store(object_url: str) -> None:
    key = key_in(B)
    first = open_store(object_url)
    first.put(key, [b"kept"])
    first.close()
    second = open_store(object_url)
    assert read(second, key) == b"kept"
    assert list(second.chains()) == [B]
    second.close()


@pytest.mark.parametrize(
    "url",
    [
        "",
        "relative/path",
        "ftp://host/x",
        "file://host/path",
        "valkey://",
        "valkey:/:sesame@host/0",
        "valkey://:sesame@host:notaport/0",
        "valkey://:sesame@host/zero",
        "valkey://:sesame@host/1?cluster=true",
        "valkey://:sesame@host/0?cluster=yes",
        "valkey://:sesame@host/0?cluster=true&cluster=true",
        "valkey://:se#same@host/0",
        "s3://",
        "s3://bucket?secret_key=sesame",
        "s3://user:sesame@bucket/prefix",
    ],
)
def test_a_wrong_url_is_refused_without_its_secrets(url: str) -> None:
    with pytest.raises(ConfigError) as refused:
        open_store(url)
    assert "sesame" not in str(refused.value)
    with pytest.raises(ConfigError):
        open_store("s3://bucket", call_seconds=0)
