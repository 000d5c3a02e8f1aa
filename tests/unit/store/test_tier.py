"""The sealed tier as an engine sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scopekv.errors import ConfigError, Misuse
from scopekv.simulate.object_store import SimulatedObjectStore
from scopekv.simulate.sealed_tier import BLOCK_BYTES, link
from scopekv.store.tier import Block, Presence, TierSettings

if TYPE_CHECKING:
    from tests.unit.store.conftest import Start

OBJECT_BYTES = BLOCK_BYTES + 48
ABSENT, PRESENT, UNKNOWN = Presence.ABSENT, Presence.PRESENT, Presence.UNKNOWN


def test_what_is_stored_is_found_and_loaded(start: Start, store: SimulatedObjectStore) -> None:
    stage = start()
    chain = stage.grant(link("document"), link("user"))
    blocks = [stage.block(chain, f"{i}") for i in range(20)]
    assert stage.lookup(*blocks) == [ABSENT] * 20
    done = stage.store(*blocks)
    assert done.ok == tuple(range(20))
    assert done.size_bytes == 20 * OBJECT_BYTES
    assert stage.lookup(*blocks) == [PRESENT] * 20
    slots = [stage.empty(block) for block in blocks]
    done = stage.load(*slots)
    assert (done.ok, done.size_bytes) == (tuple(range(20)), 20 * BLOCK_BYTES)
    assert [slot.view for slot in slots] == [block.view for block in blocks]
    counters = stage.tier.counters()
    assert (counters["stored"], counters["loaded"], counters["objects"]) == (20, 20, 20)
    assert counters["used_bytes"] == store.used_bytes() == 20 * OBJECT_BYTES
    assert (counters["hits"], counters["misses"]) == (20, 20)


def test_nothing_in_the_store_is_readable(start: Start, store: SimulatedObjectStore) -> None:
    stage = start()
    block = stage.block(
        stage.grant(link("user")), "one", b"secret prompt" + bytes(BLOCK_BYTES - 13)
    )
    stage.store(block)
    ((key, (content, _)),) = store.stored.items()
    assert b"secret" not in content
    assert block.block_hash.hex() not in key.name
    assert block.chain[0].scope.hex() not in key.chain


def test_without_every_lease_it_is_a_miss_and_keeps_nothing(
    start: Start, store: SimulatedObjectStore
) -> None:
    stage = start()
    chain = stage.grant(link("org"), link("user"))
    block = stage.block(chain, "one")
    stage.store(block)
    other = start(SimulatedObjectStore(beside=store))
    other.grant(link("org"))
    assert other.lookup(block) == [ABSENT]
    slot = other.empty(block)
    assert other.load(slot).ok == ()
    assert bytes(slot.view) == b"\xee" * BLOCK_BYTES
    other.store(Block(chain, b"x" * 32, 0, block.view))
    assert len(store.stored) == 1


def test_the_same_text_in_two_scopes_is_two_objects(start: Start) -> None:
    stage = start()
    one = stage.block(stage.grant(link("a")), "text")
    two = Block(stage.grant(link("b")), one.block_hash, 0, one.view)
    stage.store(one)
    assert stage.lookup(one, two) == [PRESENT, ABSENT]


def test_a_block_is_written_once(start: Start, store: SimulatedObjectStore) -> None:
    stage = start()
    block = stage.block(stage.grant(link("user")), "one")
    for _ in range(3):
        assert stage.store(block).ok == (0,)
    assert [name for name, _ in store.calls].count("put") == 1
    assert stage.tier.counters()["skipped"] == 2


def test_every_job_is_told_once(start: Start) -> None:
    stage = start()
    chain = stage.grant(link("user"))
    for number in range(30):
        stage.tier.store(number, [stage.block(chain, f"{number}.{i}") for i in range(3)])
    stage.tier.load(30, [])
    told: list[int] = []

    def all_told() -> bool:
        told.extend(done.job_id for done in stage.tier.finished())
        return len(told) >= 31

    stage.until(all_told)
    assert sorted(told) == list(range(31))
    stage.tier.abandon(3)
    stage.tier.abandon(99)
    assert stage.tier.finished() == []


def test_progress_of_a_load_is_seen(start: Start, store: SimulatedObjectStore) -> None:
    stage = start(workers=1, workers_max=1)
    chain = stage.grant(link("user"))
    blocks = [stage.block(chain, f"{i}") for i in range(2)]
    stage.store(*blocks)
    store.hang("read")
    job_id = stage.job()
    stage.tier.load(job_id, [stage.empty(block) for block in blocks])
    assert stage.tier.progress(job_id) == 0
    store.resume()
    assert stage.wait(job_id).ok == (0, 1)
    assert stage.tier.progress(job_id) is None


def test_an_abandoned_load_keeps_what_had_come(start: Start, store: SimulatedObjectStore) -> None:
    stage = start(workers=1, workers_max=1)
    chain = stage.grant(link("user"))
    blocks = [stage.block(chain, f"{i}") for i in range(3)]
    stage.store(*blocks)
    store.conduct.latency_seconds = 0.05
    job_id = stage.job()
    slots = [stage.empty(block) for block in blocks]
    stage.tier.load(job_id, slots)
    stage.until(lambda: stage.tier.progress(job_id) == 1)
    stage.tier.abandon(job_id)
    assert stage.wait(job_id).ok == (0,)
    assert slots[0].view == blocks[0].view


def test_a_slot_of_a_wrong_size_is_misuse(start: Start) -> None:
    stage = start()
    chain = stage.grant(link("user"))
    with pytest.raises(Misuse):
        stage.tier.load(1, [Block(chain, b"h" * 32, 0, memoryview(bytearray(7)))])
    with pytest.raises(Misuse):
        stage.tier.load(1, [Block(chain, b"h" * 32, 0, memoryview(bytes(BLOCK_BYTES)))])


def test_a_full_tier_takes_a_block_at_its_first_offer(start: Start) -> None:
    """The next turn of a conversation comes once; a second offer would be too late for it."""
    stage = start(capacity_bytes=4 * OBJECT_BYTES)
    chain = stage.grant(link("user"))
    blocks = [stage.block(chain, f"{i}") for i in range(6)]
    for block in blocks:
        stage.store(block)
    assert stage.lookup(*blocks) == [ABSENT] * 2 + [PRESENT] * 4


def test_the_tail_of_a_prompt_goes_before_its_head(start: Start) -> None:
    stage = start(capacity_bytes=4 * OBJECT_BYTES)
    chain = stage.grant(link("user"))
    prompt = [stage.block(chain, f"{i}") for i in range(4)]
    stage.store(*prompt)
    other = [stage.block(chain, "other")]
    stage.store(other[0])
    assert stage.lookup(*prompt) == [PRESENT, PRESENT, PRESENT, ABSENT]


# --- stores that others write to ------------------------------------------------------------------


def test_another_workers_blocks_are_found_in_a_shared_store(
    start: Start, store: SimulatedObjectStore
) -> None:
    one, two = start(shared=True), start(SimulatedObjectStore(beside=store), shared=True)
    chain = one.grant(link("user"))
    two.grant(link("user"))
    block, never = one.block(chain, "one"), one.block(chain, "never")
    assert two.lookup(block, never) == [ABSENT, ABSENT]
    one.store(block)
    two.until(lambda: two.lookup(block, never) == [PRESENT, ABSENT])
    slot = two.empty(block)
    assert two.load(slot).ok == (0,)
    assert slot.view == block.view


def test_a_lookup_does_not_wait_for_a_shared_store(
    start: Start, store: SimulatedObjectStore
) -> None:
    stage = start(shared=True, janitor_seconds=60.0)
    block = stage.block(stage.grant(link("user")), "one")
    asked = [(block.chain, block.block_hash, 0)]
    store.hang("read")
    assert stage.tier.lookup(asked) == [UNKNOWN]
    assert stage.tier.lookup(asked) == [UNKNOWN]
    store.resume()
    assert stage.lookup(block) == [ABSENT]
    presents = [keys for name, keys in store.calls if name == "present"]
    assert sum(len(keys) == 1 and keys[0].chain.startswith("r3600") for keys in presents) == 1


def test_what_another_worker_deleted_is_noticed(start: Start, store: SimulatedObjectStore) -> None:
    stage = start(shared=True)
    block = stage.block(stage.grant(link("user")), "one")
    stage.store(block)
    assert stage.lookup(block) == [PRESENT]
    store.stored.clear()
    stage.until(lambda: stage.lookup(block) == [ABSENT])
    assert stage.tier.counters()["used_bytes"] == 0


# --- speed and settings ---------------------------------------------------------------------------


def test_speed_is_measured(start: Start, store: SimulatedObjectStore) -> None:
    stage = start()
    chain = stage.grant(link("user"))
    assert stage.tier.speed().samples == 0
    blocks = [stage.block(chain, f"{i}") for i in range(10)]
    stage.store(*blocks)
    store.conduct.latency_seconds = 0.02
    for _ in range(5):
        stage.load(*map(stage.empty, blocks))
    speed = stage.tier.speed()
    assert speed.samples > 0
    assert speed.latency_seconds + 10 * BLOCK_BYTES / speed.bytes_per_second > 0.02
    assert not speed.suspended


def test_a_tier_that_nobody_reads_is_measured_too(
    start: Start, store: SimulatedObjectStore
) -> None:
    stage = start()
    stage.store(stage.block(stage.grant(link("user")), "one"))
    stage.until(lambda: stage.tier.speed().samples > 2)


@pytest.mark.parametrize(
    "wrong",
    [
        {"capacity_bytes": 0},
        {"workers": 0},
        {"workers": 5, "workers_max": 4},
        {"workers_max": 65},
        {"queue_blocks_max": 0},
        {"stall_seconds": 0.0},
        {"close_seconds": -1.0},
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        TierSettings(**{"capacity_bytes": 1, **wrong})  # type: ignore[arg-type]
