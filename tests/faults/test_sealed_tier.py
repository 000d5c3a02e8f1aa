"""Faults under the sealed tier that one store alone can play: a counted miss or a skip each.

The cases T1 to T10 on every adapter are in tests/cases/test_tier_cases*.py.
"""

import os
import threading
from collections.abc import Callable, Iterator

import pytest

from scopekv.core.chains import tag
from scopekv.simulate.object_store import SimulatedObjectStore
from scopekv.simulate.sealed_tier import BLOCK_BYTES, TierStage, link, small_settings
from scopekv.store.tier import Presence

OBJECT_BYTES = BLOCK_BYTES + 48
UNTOUCHED = b"\xee" * BLOCK_BYTES
Start = Callable[..., TierStage]


@pytest.fixture
def start() -> Iterator[Start]:
    stages: list[TierStage] = []

    def begin(store: object, **settings: object) -> TierStage:
        more = {name: settings.pop(name) for name in ("namespace", "random") if name in settings}
        stage = TierStage(
            store,  # type: ignore[arg-type]
            settings=small_settings(**settings),  # type: ignore[arg-type]
            **more,  # type: ignore[arg-type]
        )
        stages.append(stage)
        return stage.ready()

    yield begin
    for stage in stages:
        if isinstance(stage.store_, SimulatedObjectStore):
            stage.store_.resume()
        stage.close()


def test_more_hangs_than_workers_do_not_stop_the_tier(start: Start) -> None:
    store = SimulatedObjectStore()
    stage = start(store, workers=1, workers_max=2, stall_seconds=0.2)
    chain = stage.grant(link("user"))
    blocks = [stage.block(chain, f"{i}") for i in range(6)]

    def kept() -> bool:  # a machine that is busy may make the tier give up a call that goes on
        stage.store(*blocks)
        return stage.lookup(*blocks) == [Presence.PRESENT] * 6

    stage.until(kept)
    for _ in range(3):
        store.hang("read")
        assert stage.load(*map(stage.empty, blocks)).ok == ()
        store.resume()
        stage.until(lambda: not stage.tier.speed().suspended)
    stage.until(lambda: len(stage.load(*map(stage.empty, blocks)).ok) == 6)


def test_a_slot_that_is_reused_while_it_is_sealed_is_not_kept(start: Start) -> None:
    """T2 for stores: what is put was sealed while the slot was the job's own."""
    sealing, go = threading.Event(), threading.Event()

    def random(count: int) -> bytes:
        if count == 12:  # a nonce: sealing begins
            sealing.set()
            go.wait(20)
        return os.urandom(count)

    store = SimulatedObjectStore()
    stage = start(store, random=random)
    block = stage.block(stage.grant(link("user")), "one")
    job_id = stage.job()
    stage.tier.store(job_id, [block])
    sealing.wait(20)
    stage.tier.abandon(job_id)
    assert stage.wait(job_id).ok == ()
    block.view[:] = b"\x11" * BLOCK_BYTES
    go.set()
    stage.tier.close()
    assert "put" not in [name for name, _ in store.calls]


def test_bytes_of_a_failed_eviction_still_count(start: Start) -> None:
    store = SimulatedObjectStore()
    stage = start(store, capacity_bytes=4 * OBJECT_BYTES, recovery_seconds=30.0)
    chain = stage.grant(link("user"))
    stage.store(*[stage.block(chain, f"{i}") for i in range(4)])
    store.conduct.fail_writes = True
    more = stage.block(chain, "more")
    assert stage.store(more).ok == ()
    assert stage.tier.counters()["used_bytes"] == store.used_bytes() == 4 * OBJECT_BYTES


def test_a_slot_that_is_reused_while_a_store_hangs_is_not_kept(start: Start) -> None:
    """T2 for stores: what is sealed was the job's own while the job lasted."""
    store = SimulatedObjectStore()
    stage = start(store, workers=1, workers_max=1, stall_seconds=0.2)
    chain = stage.grant(link("user"))
    store.hang("write")
    first, second = stage.block(chain, "first"), stage.block(chain, "second")
    assert stage.store(first, second).ok == ()
    second.view[:] = b"\x11" * BLOCK_BYTES
    store.resume()
    stage.until(lambda: not stage.tier.counters()["writes_suspended"])
    assert stage.lookup(second) == [Presence.ABSENT]


@pytest.mark.parametrize("trouble", ["full", "read-only"])
def test_a_store_that_takes_nothing_more_still_serves(start: Start, trouble: str) -> None:
    store = SimulatedObjectStore()
    stage = start(store)
    chain = stage.grant(link("user"))
    kept, lost = stage.block(chain, "kept"), stage.block(chain, "lost")
    stage.store(kept)
    if trouble == "full":
        store.conduct.capacity_bytes = 1.5 * OBJECT_BYTES
    else:
        store.conduct.fail_writes = True
    assert stage.store(lost).ok == ()
    assert stage.tier.counters()["writes_suspended"] == 1
    assert stage.lookup(kept, lost) == [Presence.PRESENT, Presence.ABSENT]
    assert stage.load(stage.empty(kept)).ok == (0,)
    store.conduct.capacity_bytes, store.conduct.fail_writes = float("inf"), False
    stage.until(lambda: not stage.tier.counters()["writes_suspended"])
    assert stage.store(lost).ok == (0,)
    assert stage.load(stage.empty(lost)).ok == (0,)


def test_a_store_that_only_lies_is_suspended(start: Start) -> None:
    store = SimulatedObjectStore()
    stage = start(store, recovery_seconds=30.0, recovery_seconds_max=30.0)
    chain = stage.grant(link("user"))
    blocks = [stage.block(chain, f"{i}") for i in range(8)]
    stage.store(*blocks)
    store.conduct.flip_reads = True
    assert stage.load(*map(stage.empty, blocks)).ok == ()
    assert stage.tier.counters()["corrupt"] == 8
    assert stage.tier.speed().suspended


def test_a_corrupt_object_that_cannot_be_put_out_of_sight_counts_and_goes_later(
    start: Start,
) -> None:
    store = SimulatedObjectStore()
    stage = start(store, inventory_seconds=600.0)
    block = stage.block(stage.grant(link("user")), "one")
    stage.store(block)
    store.conduct.flip_reads = store.conduct.fail_writes = True
    assert stage.load(stage.empty(block)).ok == ()
    assert stage.tier.counters()["used_bytes"] == store.used_bytes() == OBJECT_BYTES
    store.conduct.fail_writes = False
    stage.until(lambda: not store.stored)
    stage.until(lambda: stage.tier.counters()["used_bytes"] == 0)


def test_keys_rotated_in_the_middle_of_a_read_give_nothing(start: Start) -> None:
    store = SimulatedObjectStore()
    stage = start(store)
    block = stage.block(stage.grant(link("user", 1)), "one")
    stage.store(block)
    store.hang("read")
    slot = stage.empty(block)
    job_id = stage.job()
    stage.tier.load(job_id, [slot])
    stage.until(lambda: store.waiting > 0)
    stage.grant(link("user", 2))
    store.resume()
    assert stage.wait(job_id).ok == ()
    assert bytes(slot.view) == UNTOUCHED


def test_a_purge_leaves_nothing_that_a_hanging_put_could_bring_back(start: Start) -> None:
    store = SimulatedObjectStore()
    stage = start(store)
    gone, kept = stage.grant(link("gone")), stage.grant(link("kept"))
    stage.store(stage.block(gone, "0"), stage.block(kept, "0"))
    beside = SimulatedObjectStore(beside=store)
    tags = frozenset({tag(gone[0])})
    store.hang("put")
    job_id = stage.job()
    stage.tier.store(job_id, [stage.block(gone, "1")])
    stage.until(lambda: store.waiting > 0)
    assert stage.tier.purge(tags).busy > 0
    stage.until(lambda: len(store.stored) == 1)
    lists = [name for name, _ in store.calls].count("objects")
    stage.until(lambda: [name for name, _ in store.calls].count("objects") > lists + 2)
    assert stage.tier.purge(tags).busy > 0, "no success while a write is under way"
    store.resume()
    stage.until(lambda: stage.tier.purge(tags).busy == 0)
    assert stage.tier.purge(tags).error is None
    assert stage.wait(job_id).ok == ()
    assert {key.chain for key in beside.stored} == {key.chain for key in store.stored}
    assert [key.chain.count(tag(gone[0])) for key in store.stored] == [0]


def test_closing_while_the_store_hangs_is_bounded(start: Start) -> None:
    store = SimulatedObjectStore()
    stage = start(store, close_seconds=0.2)
    block = stage.block(stage.grant(link("user")), "one")
    store.hang()
    job_id = stage.job()
    stage.tier.store(job_id, [block])
    stage.tier.close()  # the time limit of the test run is the check
    assert stage.wait(job_id).ok == ()


def test_a_fence_of_more_scopes_than_it_remembers_still_ends_every_lease(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scopekv.store.keyring.FENCED_MAX", 2)
    stage = start(SimulatedObjectStore())
    chains = [stage.grant(link(f"user {n}")) for n in range(6)]
    blocks = [stage.block(chain, "one") for chain in chains]
    stage.store(*blocks)
    stage.tier.purge(frozenset(tag(chain[0]) for chain in chains), pending_only=True)
    assert [stage.keyring.chain(chain) for chain in chains] == [None] * 6
    assert stage.load(*map(stage.empty, blocks)).ok == ()
