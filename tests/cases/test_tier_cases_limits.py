"""Cases T3 and T4 on every adapter: bounded by bytes, per account, and never stuck.

The limit of host memory is in the engine's tests (tests/engine/tiers).
"""

from __future__ import annotations

import pytest

from scopekv.simulate.sealed_tier import TierStage, link
from scopekv.store.tier import Block
from tests.cases.conftest import Start
from tests.cases.test_tier_cases import PRESENT, assert_loads
from tests.cases.tier_places import OBJECT_BYTES, Gate, Place, ServerPlace

ROOM = 24  # blocks
BATCH = 4
ALL = tuple(range(BATCH))
BIG, SMALL, TINY = (name * 16 for name in (b"b", b"s", b"t"))


def full(start: Start) -> TierStage:
    return start(capacity_bytes=ROOM * OBJECT_BYTES)


def offer(stage: TierStage, *blocks: Block) -> None:
    assert stage.store(*blocks).ok == tuple(range(len(blocks)))


def rounds(place: Place) -> int:
    return 20 if isinstance(place, ServerPlace) else 100


def test_t3_unique_blocks_for_long(place: Place, start: Start) -> None:
    """The bytes that lie in the store, not only those that the tier counts."""
    stage = full(start)
    quiet = stage.grant(link("quiet"), account=SMALL)
    flood = stage.grant(link("flood"), account=BIG)
    own = [stage.block(quiet, f"{i}") for i in range(6)]
    offer(stage, *own)
    for number in range(rounds(place)):
        offer(stage, *(stage.block(flood, f"{number} {i}") for i in range(BATCH)))
        used = place.used_bytes()
        assert used <= ROOM * OBJECT_BYTES
        assert stage.tier.counters()["used_bytes"] == used
    evicted = rounds(place) * BATCH + len(own) - ROOM
    assert stage.tier.counters()["evicted"] == evicted, "it never stops evicting"
    assert stage.tier.used_by_account() == {
        SMALL: len(own) * OBJECT_BYTES,
        BIG: (ROOM - len(own)) * OBJECT_BYTES,
    }
    assert stage.lookup(*own) == [PRESENT] * len(own), "below its share nobody is evicted"
    for block in own:
        assert_loads(stage, block)


def test_t4_big_and_small_accounts_beyond_the_limit(place: Place, start: Start) -> None:
    """A big one has taken all; small ones come late, and get their share of it."""
    stage = full(start)
    big = stage.grant(link("big"), account=BIG)
    for number in range(ROOM // BATCH + 2):
        offer(stage, *(stage.block(big, f"{number} {i}") for i in range(BATCH)))
    assert stage.tier.used_by_account() == {BIG: ROOM * OBJECT_BYTES}, "idle share is lent"
    chains = {
        account: stage.grant(link(str(account)), account=account) for account in (SMALL, TINY)
    }
    for number in range(rounds(place) // 2):
        offer(stage, *(stage.block(big, f"more {number} {i}") for i in range(BATCH)))
        last = [stage.block(chain, f"{number % 3}") for chain in chains.values()]
        offer(stage, *last)
        assert place.used_bytes() <= ROOM * OBJECT_BYTES
        assert stage.tier.counters()["no_room"] == 0, "never a store that finds nothing to evict"
        assert stage.lookup(*last) == [PRESENT] * len(last)
    used = stage.tier.used_by_account()
    assert used[SMALL] == used[TINY] == 3 * OBJECT_BYTES, "what each of them wrote"
    assert used[BIG] == (ROOM - 6) * OBJECT_BYTES
    newest = stage.block(big, "newest")
    offer(stage, newest)
    assert_loads(stage, newest)


@pytest.mark.parametrize("moment", ["before", "across", "meanwhile"])
def test_t4_a_listing_around_an_eviction_counts_nothing_twice(
    place: Place, start: Start, moment: str
) -> None:
    """It shows what is forgotten and not deleted yet, or was when it began."""
    gate = Gate(place.open())
    stage = start(gate, capacity_bytes=2 * OBJECT_BYTES, inventory_seconds=0.005)
    chain = stage.grant(link("user"), account=BIG)
    offer(stage, stage.block(chain, "0"), stage.block(chain, "1"))
    new = stage.block(chain, "2")
    job_id = stage.job()
    if moment == "before":
        gate.hold("objects")
        stage.until(lambda: gate.holds("objects"))
        stage.tier.store(job_id, [new])
        assert stage.wait(job_id).ok == (0,)
        gate.let_waiting_through()
        stage.until(lambda: gate.holds("objects"))  # the next: that one is over
    elif moment == "across":
        gate.hold("before delete")
        stage.tier.store(job_id, [new])
        stage.until(lambda: gate.holds("before delete"))
        gate.hold("before delete", "objects")
        for _ in range(2):  # one that began after that, at the latest the second
            stage.until(lambda: gate.holds("objects"))
            gate.let_waiting_through("objects")
        stage.until(lambda: gate.holds("objects"))
        gate.let_waiting_through("before delete")
        assert stage.wait(job_id).ok == (0,)
        gate.let_waiting_through("objects")
        stage.until(lambda: gate.holds("objects"))  # the next: that one is over
    else:
        gate.hold("before delete")
        stage.tier.store(job_id, [new])
        stage.until(lambda: gate.holds("before delete"))
        gate.hold("before delete", "objects")
        for _ in range(2):  # a listing that began after that, and is over
            stage.until(lambda: gate.holds("objects"))
            gate.let_waiting_through("objects")
        stage.until(lambda: gate.holds("objects"))
        gate.let_waiting_through()
        assert stage.wait(job_id).ok == (0,)
    assert stage.tier.used_by_account() == {BIG: 2 * OBJECT_BYTES}
    assert stage.tier.counters()["used_bytes"] == place.used_bytes()


@pytest.mark.parametrize("room", [1, 2])
def test_t4_a_tier_of_hardly_a_block(place: Place, start: Start, room: int) -> None:
    stage = start(capacity_bytes=room * OBJECT_BYTES)
    chain = stage.grant(link("user"))
    for number in range(8):
        block = stage.block(chain, f"{number}")
        offer(stage, block)
        assert place.used_bytes() <= room * OBJECT_BYTES
        assert_loads(stage, block)
    assert stage.tier.counters()["evicted"] == 8 - room


def test_t4_another_process_fills_the_store_too(place: Place, start: Start) -> None:
    """What others wrote counts from the next listing on, and goes first."""
    other = start()
    theirs = [other.block(other.grant(link("other")), f"{i}") for i in range(ROOM)]
    assert len(other.store(*theirs).ok) == ROOM
    other.close()
    stage = full(start)
    assert stage.tier.counters()["used_bytes"] == ROOM * OBJECT_BYTES
    chain = stage.grant(link("user"))
    for number in range(8):
        offer(stage, *(stage.block(chain, f"{number} {i}") for i in range(BATCH)))
        assert place.used_bytes() <= ROOM * OBJECT_BYTES
    assert stage.tier.counters()["no_room"] == 0
