"""Purges of a sealed tier: what they reach, when they take effect, and what they say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scopekv.core.chains import Tag, folder, tag
from scopekv.ports import ObjectKey
from scopekv.simulate.object_store import SimulatedObjectStore
from scopekv.simulate.sealed_tier import BLOCK_BYTES, TierStage, link
from scopekv.store.fence import Fence
from scopekv.store.purges import Purges
from scopekv.store.tier import Presence, Purged

if TYPE_CHECKING:
    from tests.unit.store.conftest import Start

ABSENT, PRESENT = Presence.ABSENT, Presence.PRESENT


def purged(stage: TierStage, *names: str) -> Purged:
    tags: frozenset[Tag] = frozenset(tag(link(name)) for name in names)
    answers: list[Purged] = []

    def over() -> bool:
        answers.append(stage.tier.purge(tags))
        return answers[-1].busy == 0

    stage.until(over)
    return answers[-1]


def test_a_purge_reaches_every_chain_that_holds_the_scope(
    start: Start, store: SimulatedObjectStore
) -> None:
    stage = start(janitor_seconds=600.0)  # it removes, too, and counts apart
    org, both, user = (
        stage.grant(*map(link, names)) for names in (["org"], ["org", "user"], ["user"])
    )
    blocks = [stage.block(chain, "one") for chain in (org, both, user)]
    stage.store(*blocks)
    assert purged(stage, "user") == Purged(2, 0)
    assert [key.chain.count("-") for key in store.stored] == [1]
    assert stage.lookup(*blocks) == [PRESENT, ABSENT, ABSENT]
    assert stage.load(*map(stage.empty, blocks)).ok == (0,)
    assert stage.store(*blocks).ok == (0, 1, 2)
    assert len(store.stored) == 1, "nothing of it is written again"
    assert purged(stage, "user") == Purged(0, 0), "asked again: done, and counted once"


def test_a_purge_deletes_what_other_writers_left(start: Start, store: SimulatedObjectStore) -> None:
    stage = start(janitor_seconds=600.0)
    other = start(SimulatedObjectStore(beside=store))
    other.store(*[other.block(other.grant(link("user")), f"{i}") for i in range(5)])
    assert purged(stage, "user", "nobody") == Purged(5, 0)
    assert not store.stored


def test_a_purge_takes_effect_at_once(start: Start, store: SimulatedObjectStore) -> None:
    stage = start(workers=1, workers_max=1)
    chain, kept = stage.grant(link("user")), stage.grant(link("kept"))
    blocks = [stage.block(chain, "0"), stage.block(chain, "1"), stage.block(kept, "0")]
    stage.store(*blocks)
    store.hang("read")
    job_id = stage.job()
    slots = [stage.empty(block) for block in blocks]
    stage.tier.load(job_id, slots)
    stage.until(lambda: store.waiting > 0)
    only_purged = stage.job()
    stage.tier.load(only_purged, [stage.empty(blocks[1])])
    first = stage.tier.purge(frozenset({tag(chain[0])}))
    assert first.busy > 0
    assert stage.wait(only_purged).ok == (), "told at once, while the store hangs"
    assert stage.lookup(*blocks) == [ABSENT, ABSENT, PRESENT]
    store.resume()
    assert stage.wait(job_id).ok == (2,), "the other scope's block still comes"
    assert [bytes(slot.view) == b"\xee" * BLOCK_BYTES for slot in slots] == [True, True, False]


def test_a_purge_ends_a_load_that_hangs(start: Start, store: SimulatedObjectStore) -> None:
    stage = start()
    chain = stage.grant(link("user"))
    block = stage.block(chain, "one")
    stage.store(block)
    store.hang("get")
    slot = stage.empty(block)
    job_id = stage.job()
    stage.tier.load(job_id, [slot])
    stage.until(lambda: store.waiting > 0)
    stage.tier.purge(frozenset({tag(chain[0])}))
    assert stage.wait(job_id).ok == (), "told while the call still hangs"
    store.resume()
    stage.until(lambda: store.waiting == 0)
    assert bytes(slot.view) == b"\xee" * BLOCK_BYTES


def test_a_purge_out_of_reach_says_so_and_can_be_asked_again(
    start: Start, store: SimulatedObjectStore
) -> None:
    stage = start()
    stage.store(stage.block(stage.grant(link("user")), "one"))
    tags = frozenset({tag(link("user"))})
    store.conduct.fail_writes = True
    stage.until(lambda: stage.tier.purge(tags).error is not None)
    store.conduct.fail_writes = False
    assert purged(stage, "user").error is None
    assert not store.stored


def test_purges_that_wait_are_one_walk_over_the_store() -> None:
    """As the parts of a receipt of many scopes are."""
    store = SimulatedObjectStore()
    purges = Purges(store, Fence(), lambda: 0.0, lambda _: None, threaded=False)
    links = [link(f"{number}") for number in range(5)]
    for one in (*links, link("kept")):
        store.put(ObjectKey(folder((one,), 60) or "", "0"), [b"x"])
    parts = [frozenset({tag(one)}) for one in links]
    assert [purges.ask(part).busy for part in parts] == [1] * 5
    assert purges.turn()
    assert not purges.turn()
    assert [purges.ask(part) for part in parts] == [Purged(5, 0), *[Purged(0, 0)] * 4]
    assert len(store.stored) == 1
    assert [name for name, _ in store.calls].count("objects") == 2, "and one that finds nothing"
    store.conduct.fail_reads = True
    parts = [part | {tag(link("more"))} for part in parts]
    assert [purges.ask(part).busy for part in parts] == [1] * 5
    assert purges.turn()
    assert [purges.ask(part).error is None for part in parts] == [False] * 5, "each is told"


def test_a_fence_alone_deletes_nothing(start: Start, store: SimulatedObjectStore) -> None:
    stage = start()
    block = stage.block(stage.grant(link("user")), "one")
    stage.store(block)
    assert stage.tier.purge(frozenset({tag(link("user"))}), pending_only=True) == Purged(0, 0)
    assert stage.lookup(block) == [ABSENT]
    assert len(store.stored) == 1
