"""The janitor: recovery, retention by both clocks, the limit across writers, the manifest."""

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from scopekv.adapters.manifest_file import write_manifest
from scopekv.adapters.objects import DirectoryStore
from scopekv.core.chains import holds_any, tag
from scopekv.ports import ObjectKey
from scopekv.simulate.object_store import SimulatedObjectStore
from scopekv.simulate.sealed_tier import (
    BLOCK_BYTES,
    SimulatedBroker,
    TierStage,
    link,
    small_settings,
)
from scopekv.store.purges import BATCH
from scopekv.store.tier import Presence

OBJECT_BYTES = BLOCK_BYTES + 48
ABSENT, PRESENT = Presence.ABSENT, Presence.PRESENT
RETENTION = 1000


class Wall:
    """A wall clock that can be set."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead


@pytest.fixture
def wall() -> Wall:
    return Wall()


@pytest.fixture
def store(wall: Wall) -> SimulatedObjectStore:
    return SimulatedObjectStore(clock=wall)


Start = Callable[..., TierStage]


@pytest.fixture
def start(store: SimulatedObjectStore, wall: Wall) -> Iterator[Start]:
    stages: list[TierStage] = []

    def begin(at: object = store, **settings: object) -> TierStage:
        stage = TierStage(
            at,  # type: ignore[arg-type]
            settings=small_settings(**settings),  # type: ignore[arg-type]
            broker=SimulatedBroker(retention_seconds=RETENTION),
            clock=wall,
        )
        stages.append(stage)
        return stage.ready()

    yield begin
    for stage in stages:
        stage.close()


def test_a_restart_finds_what_was_stored(start: Start, tmp_path: Path) -> None:
    first = start(DirectoryStore(tmp_path / "objects"))
    chain = first.grant(link("user"))
    blocks = [first.block(chain, f"{i}") for i in range(10)]
    first.store(*blocks)
    first.close()
    second = start(DirectoryStore(tmp_path / "objects"))
    assert second.tier.counters()["used_bytes"] == 10 * OBJECT_BYTES
    assert second.lookup(*blocks) == [ABSENT] * 10, "no lease yet"
    second.grant(link("user"))
    assert second.lookup(*blocks) == [PRESENT] * 10
    assert len(second.load(*map(second.empty, blocks)).ok) == 10


def test_recency_and_accounts_outlive_a_restart(
    start: Start, store: SimulatedObjectStore, tmp_path: Path
) -> None:
    path = tmp_path / "state" / "manifest"
    first = start(manifest=path)
    chain = first.grant(link("user"), account=b"u" * 16)
    blocks = [first.block(chain, f"{i}") for i in range(4)]
    for block in blocks:
        first.store(block)
    for block in blocks[1:]:
        first.load(first.empty(block))
    first.tier.close()
    assert path.stat().st_mode & 0o777 == 0o600
    second = start(SimulatedObjectStore(beside=store), manifest=path)
    assert second.tier.used_by_account() == {b"u" * 16: 4 * OBJECT_BYTES}
    third = start(
        SimulatedObjectStore(beside=store), manifest=path, capacity_bytes=3 * OBJECT_BYTES
    )
    third.grant(link("user"))
    third.until(lambda: third.tier.counters()["used_bytes"] <= 3 * OBJECT_BYTES)
    assert third.lookup(*blocks) == [ABSENT, PRESENT, PRESENT, PRESENT]


@pytest.mark.parametrize("content", [b"", b"short", bytes(100), b"x" * 5000])
def test_a_bad_manifest_is_counted_and_ignored(
    start: Start, store: SimulatedObjectStore, tmp_path: Path, content: bytes
) -> None:
    first = start()
    chain = first.grant(link("user"))
    first.store(first.block(chain, "0"))
    path = tmp_path / "manifest"
    path.write_bytes(content)
    second = start(SimulatedObjectStore(beside=store), manifest=path)
    second.grant(link("user"))
    assert second.lookup(first.block(chain, "0")) == [PRESENT]
    assert second.tier.counters()["manifest_bad"] == 1


def test_a_manifest_proves_no_existence(
    start: Start, store: SimulatedObjectStore, tmp_path: Path
) -> None:
    path = tmp_path / "manifest"
    first = start(manifest=path)
    block = first.block(first.grant(link("user")), "0")
    first.store(block)
    first.tier.close()
    store.stored.clear()
    second = start(SimulatedObjectStore(beside=store), manifest=path)
    second.grant(link("user"))
    assert second.lookup(block) == [ABSENT]


def test_a_manifest_proves_no_size(
    start: Start, store: SimulatedObjectStore, tmp_path: Path
) -> None:
    path = tmp_path / "manifest"
    first = start(manifest=path)
    first.store(first.block(first.grant(link("user")), "0"))
    first.tier.close()
    store.damage(next(iter(store.stored)), lambda content: content + bytes(1000))
    second = start(SimulatedObjectStore(beside=store), manifest=path)
    assert second.tier.counters()["used_bytes"] == store.used_bytes() == OBJECT_BYTES + 1000


def test_a_manifest_with_a_good_checksum_and_a_bad_body_is_ignored(
    start: Start, tmp_path: Path
) -> None:
    write_manifest(tmp_path / "manifest", [b"\x92\x09\x90"])
    assert start(manifest=tmp_path / "manifest").tier.counters()["manifest_bad"] == 1


def test_what_is_over_is_not_served_and_is_deleted_while_idle(
    start: Start, store: SimulatedObjectStore, wall: Wall
) -> None:
    stage = start()
    block = stage.block(stage.grant(link("user")), "one")
    stage.store(block)
    wall.ahead += RETENTION + 1
    assert stage.lookup(block) == [ABSENT]
    assert stage.load(stage.empty(block)).ok == ()
    stage.until(lambda: not store.stored)
    stage.until(lambda: stage.tier.counters()["expired"] == 1)
    assert stage.tier.counters()["used_bytes"] == 0


@pytest.mark.parametrize("shared", [False, True])
def test_what_others_left_is_deleted_when_it_is_over(
    start: Start, store: SimulatedObjectStore, wall: Wall, shared: bool
) -> None:
    other = start(SimulatedObjectStore(beside=store, clock=wall))
    other.store(*[other.block(other.grant(link("user")), f"{i}") for i in range(3)])
    other.close()
    stage = start(shared=shared)
    assert len(store.stored) == 3
    wall.ahead += RETENTION + 1
    stage.until(lambda: not store.stored)


def test_a_shared_stores_old_object_is_never_served(
    start: Start, store: SimulatedObjectStore, wall: Wall
) -> None:
    other = start(SimulatedObjectStore(beside=store, clock=wall), janitor_seconds=60.0)
    old, fresh = (other.block(other.grant(link("user")), name) for name in ("old", "fresh"))
    other.store(old)
    wall.ahead += RETENTION - 10
    stage = start(shared=True, janitor_seconds=60.0)
    stage.grant(link("user"))
    other.store(fresh)
    assert stage.lookup(old, fresh) == [PRESENT, PRESENT]
    wall.ahead += 11
    assert len(store.stored) == 2, "nobody has tidied up yet"
    assert stage.lookup(old, fresh) == [ABSENT, PRESENT]
    assert stage.load(stage.empty(old), stage.empty(fresh)).ok == (1,)
    assert stage.tier.expire() in (0, 1)


def test_a_clock_set_back_serves_nothing_for_ever(
    start: Start, store: SimulatedObjectStore, wall: Wall
) -> None:
    wall.ahead = 1e6
    stage = start()
    block = stage.block(stage.grant(link("user")), "one")
    stage.store(block)
    wall.ahead = 0.0
    assert stage.lookup(block) == [ABSENT]
    stage.until(lambda: not store.stored)
    assert stage.store(block).ok == (0,)
    assert stage.lookup(block) == [PRESENT]


def test_the_limit_holds_over_all_writers(start: Start, store: SimulatedObjectStore) -> None:
    other = start(SimulatedObjectStore(beside=store))
    other.store(*[other.block(other.grant(link("user")), f"{i}") for i in range(10)])
    stage = start(shared=True, capacity_bytes=4 * OBJECT_BYTES)
    stage.until(lambda: len(store.stored) == 4)
    assert stage.tier.counters()["evicted"] == 6


def test_what_could_not_be_deleted_is_deleted_later(
    start: Start, store: SimulatedObjectStore, wall: Wall
) -> None:
    stage = start()
    stage.store(stage.block(stage.grant(link("user")), "one"))
    store.conduct.fail_writes = True
    wall.ahead += RETENTION + 1
    stage.until(lambda: stage.tier.counters()["errors"] > 0)
    assert stage.tier.counters()["used_bytes"] == OBJECT_BYTES, "its bytes are still there"
    store.conduct.fail_writes = False
    stage.until(lambda: not store.stored)
    stage.until(lambda: stage.tier.counters()["used_bytes"] == 0)


class OneBatch(SimulatedObjectStore):
    """A store that deletes once and then fails, as a disk does that is made read-only."""

    def delete(self, keys: Sequence[ObjectKey]) -> int:
        count = super().delete(keys)
        self.conduct.fail_writes = True
        return count


def test_what_a_failed_deletion_did_not_come_to_counts_on(
    start: Start, store: SimulatedObjectStore
) -> None:
    other = start()
    chain = other.grant(link("user"))
    other.store(*[other.block(chain, f"{i}") for i in range(3 * BATCH)])
    half = OneBatch(beside=store)
    stage = start(half, capacity_bytes=4 * OBJECT_BYTES, recovery_seconds=30.0)
    stage.until(lambda: stage.tier.counters()["errors"] > 0)
    assert len(store.stored) == 2 * BATCH
    assert stage.tier.counters()["used_bytes"] == store.used_bytes()


def test_an_inventory_deletes_what_was_purged_and_came_back(
    start: Start, store: SimulatedObjectStore
) -> None:
    stage = start(shared=True)
    stage.store(stage.block(stage.grant(link("user")), "one"))
    late = dict(store.stored)
    tags = frozenset({tag(link("user"))})
    stage.until(lambda: stage.tier.purge(tags).busy == 0)
    store.stored.update(late)
    stage.until(lambda: not store.stored)


def test_what_is_quarantined_after_a_purge_goes_as_well(
    start: Start, store: SimulatedObjectStore
) -> None:
    stage = start()
    gone, kept = (stage.block(stage.grant(link(name)), "one") for name in ("gone", "kept"))
    stage.store(gone, kept)
    late = dict(store.stored)
    tags = frozenset({tag(link("gone"))})
    stage.until(lambda: stage.tier.purge(tags).busy == 0)
    store.kept_aside.update(late)  # as by a load that found it corrupt in the meantime
    stage.until(lambda: len(store.kept_aside) == 1)
    assert not holds_any(next(iter(store.kept_aside)).chain, tags)


def test_a_probe_leaves_nothing_behind(start: Start, store: SimulatedObjectStore) -> None:
    stage = start()
    store.conduct.fail_writes = True
    stage.store(stage.block(stage.grant(link("user")), "one"))
    store.conduct.fail_writes = False
    stage.until(lambda: not stage.tier.counters()["writes_suspended"])
    stage.until(lambda: not store.stored)
