"""Cases T5 and T6 on every adapter: stores that restart, are slow, or hang."""

from __future__ import annotations

import pytest

from scopekv.core.chains import tag
from scopekv.ports import ObjectStore
from scopekv.simulate.sealed_tier import TierStage, link
from tests.cases.conftest import Start
from tests.cases.test_tier_cases import ABSENT, ANOTHERS, PRESENT, UNTOUCHED, assert_loads, stored
from tests.cases.tier_places import Gate, Place, ServerPlace

ROUND_TRIP_SECONDS = 0.02
REQUESTS = 50


def hasty(place: Place) -> ObjectStore:
    """A client with the time limits of a deployment, which notices soon."""
    return place.client(2.0) if isinstance(place, ServerPlace) else place.open()


def back(stage: TierStage) -> None:
    """Nobody did anything about it: it recovers by itself."""

    def in_use() -> bool:
        counters = stage.tier.counters()
        return not counters["suspended"] and not counters["writes_suspended"]

    stage.until(in_use)


@pytest.mark.timeout(120)
def test_t5_the_store_is_killed_and_started_again(place: Place, start: Start) -> None:
    stage = start(hasty(place))
    chain = stage.grant(link("user"))
    blocks = [stage.block(chain, f"{i}") for i in range(4)]
    for block in blocks:
        stored(place, stage, block)
    place.stop()
    slots = [stage.empty(block) for block in blocks]
    assert stage.load(*slots).ok == (), "misses, and requests go on"
    assert all(bytes(slot.view) == UNTOUCHED for slot in slots)
    assert stage.tier.speed().suspended
    for _ in range(20):
        assert stage.lookup(*blocks) == [ABSENT] * 4
        assert stage.store(stage.block(chain, "more")).ok == (0,), "skipped"
    place.restart()
    back(stage)
    if place.keeps:
        stage.until(lambda: stage.lookup(*blocks) == [PRESENT] * 4)
    else:
        stage.load(*slots)  # what memory lost is a miss, and forgotten
        assert stage.lookup(*blocks) == [ABSENT] * 4
        assert stage.store(*blocks).ok == (0, 1, 2, 3)
    for block in (*blocks, stage.block(chain, "new")):
        stage.store(block)
        assert_loads(stage, block)
    assert stage.tier.counters()["corrupt"] == 0


def test_t5_the_engine_is_started_again_and_finds_the_content(place: Place, start: Start) -> None:
    first = start()
    chain = first.grant(link("user"))
    blocks = [first.block(chain, f"{i}") for i in range(20)]
    assert len(first.store(*blocks).ok) == 20
    used = place.used_bytes()
    first.close()
    second = start()
    assert second.tier.counters()["used_bytes"] == used
    assert second.lookup(*blocks) == [ABSENT] * 20, "no lease yet"
    second.grant(link("user"))
    assert second.lookup(*blocks) == [PRESENT] * 20
    for block in blocks:
        assert_loads(second, block)


def test_t5_a_store_that_is_down_when_the_engine_starts(place: Place, start: Start) -> None:
    first = start()
    chain = first.grant(link("user"))
    block = first.block(chain, "one")
    stored(place, first, block)
    first.close()
    client = hasty(place)
    place.stop()
    second = TierStage(client, settings=first.settings)
    second.grant(link("user"))
    second.lookup(block)
    assert second.load(second.empty(block)).ok == ()
    place.restart()
    second.ready()
    back(second)
    if place.keeps:
        second.until(lambda: second.lookup(block) == [PRESENT])
    else:
        assert second.store(block).ok == (0,)
    assert_loads(second, block)
    second.close()


def test_t6_fifty_requests_on_one_prefix_with_slow_round_trips(place: Place, start: Start) -> None:
    """Each gets the right bytes, those who gave up get none, and the tier says how slow it is."""
    gate = Gate(place.open())
    stage = start(gate, janitor_seconds=600.0)
    chain = stage.grant(link("user"))
    prefix = [stage.block(chain, f"{i}") for i in range(2)]
    for block in prefix:
        stored(place, stage, block)
    gate.late_seconds = ROUND_TRIP_SECONDS
    stage.lookup(*prefix)
    jobs = {stage.job(): [stage.empty(block) for block in prefix] for _ in range(REQUESTS)}
    for job_id, slots in jobs.items():
        stage.tier.load(job_id, slots)
    given_up = list(jobs)[30:]
    for job_id in given_up:
        stage.tier.abandon(job_id)
        for slot in jobs[job_id]:
            slot.view[:] = ANOTHERS
    for job_id, slots in jobs.items():
        done = stage.wait(job_id)
        if job_id in given_up:
            assert all(bytes(slot.view) == ANOTHERS for slot in slots)
            continue
        assert done.ok == (0, 1)
        assert done.seconds >= ROUND_TRIP_SECONDS
        assert [slot.view for slot in slots] == [block.view for block in prefix]
    speed = stage.tier.speed()
    fetch_seconds = speed.latency_seconds + 2 * len(prefix[0].view) / speed.bytes_per_second
    assert fetch_seconds >= ROUND_TRIP_SECONDS, "what fetch-or-recompute goes by"
    assert not speed.suspended
    assert stage.tier.counters()["stalls"] == 0


@pytest.mark.timeout(60)
def test_t6_a_store_that_hangs_blocks_no_caller(place: Place, start: Start) -> None:
    """Every call of the engine's returns while no answer of the store does."""
    gate = Gate(place.open())
    stage = start(gate, close_seconds=0.2)
    chain = stage.grant(link("user"))
    old, new = stage.block(chain, "old"), stage.block(chain, "new")
    stored(place, stage, old)
    gate.hold()
    tier = stage.tier
    tier.load(stage.job(), [stage.empty(old)])
    tier.store(stage.job(), [new])
    stage.until(lambda: gate.waiting >= 2)
    asked = [(one.chain, one.block_hash, 0) for one in (old, new)]
    for _ in range(200):
        assert len(tier.lookup(asked)) == 2
        job_id = stage.job()
        tier.load(job_id, [stage.empty(old), stage.empty(new)])
        tier.abandon(job_id)
        tier.store(stage.job(), [stage.block(chain, "more")])
    tier.touch(asked)
    tier.finished()
    tier.counters()
    tier.speed()
    assert tier.purge(frozenset({tag(link("other"))})).busy > 0


@pytest.mark.timeout(60)
def test_t6_a_store_that_hangs_is_suspended_until_it_answers(place: Place, start: Start) -> None:
    server = place if isinstance(place, ServerPlace) else None
    gate = Gate(place.client(20.0) if isinstance(place, ServerPlace) else place.open())
    stage = start(gate, stall_seconds=1.5 if server else 0.2)
    chain = stage.grant(link("user"))
    blocks = [stage.block(chain, f"{i}") for i in range(4)]

    def kept() -> bool:  # a machine that is busy may make the tier give up a call that goes on
        stage.store(*blocks)
        return stage.lookup(*blocks) == [PRESENT] * 4

    stage.until(kept)
    if server:
        server.pause()
    else:
        gate.hold()
    slots = [stage.empty(block) for block in blocks]
    assert stage.load(*slots).ok == (), "given up, not waited for"
    assert stage.tier.speed().suspended
    assert stage.tier.counters()["stalls"] > 0
    assert stage.lookup(*blocks) == [ABSENT] * 4
    assert stage.store(stage.block(chain, "new")).ok == (0,), "skipped at once"
    for slot in slots:
        slot.view[:] = ANOTHERS
    if server:
        server.go_on()
    gate.let_through()
    back(stage)
    stage.until(lambda: stage.lookup(*blocks) == [PRESENT] * 4)
    for block in blocks:
        slot = stage.empty(block)
        stage.until(lambda slot=slot: stage.load(slot).ok == (0,))  # type: ignore[misc]
        assert slot.view == block.view
    assert all(bytes(slot.view) == ANOTHERS for slot in slots), "late answers reach no slot"
