"""Which blocks lie in a tier: what is written, found, evicted, purged, quarantined and expired."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scopekv.core.block_hashes import short
from scopekv.core.blocks import Fingerprint
from scopekv.core.chains import tag
from scopekv.core.events import Medium
from scopekv.ports import ObjectKey
from scopekv.simulate.object_store import SimulatedObjectStore
from scopekv.simulate.sealed_tier import BLOCK_BYTES, TierStage, link, small_settings
from scopekv.store.blocks import Block, Presence
from scopekv.store.opening import store_id
from scopekv.store.residents import Residents

OBJECT_BYTES = BLOCK_BYTES + 48
STEPS = st.lists(st.tuples(st.sampled_from(("put", "drop", "tell")), st.integers(0, 5)))


@given(STEPS)
def test_what_is_told_is_what_the_changes_add_up_to(steps: list[tuple[str, int]]) -> None:
    residents, told = Residents(), Counter[int]()
    held: dict[ObjectKey, int] = {}
    for step, number in steps:
        key = ObjectKey("folder", str(number))
        if step == "put":
            residents.put(key, number // 2)
            held[key] = number // 2
        elif step == "drop":
            residents.drop(key)
            held.pop(key, None)
        else:
            came, left = residents.changes()
            told.update(came)
            assert Counter(left) <= told
            told.subtract(left)
        assert Counter(residents.told()) == +told
        assert residents.all() == held


@pytest.fixture
def store() -> SimulatedObjectStore:
    return SimulatedObjectStore()


@pytest.fixture
def stage(store: SimulatedObjectStore, tmp_path: Path) -> Iterator[TierStage]:
    made = TierStage(store, settings=small_settings(tmp_path / "manifest")).ready()
    yield made
    made.close()


def news(stage: TierStage) -> tuple[set[int], set[int]]:
    came, left = stage.tier.residents.changes()
    return set(came), set(left)


def shorts(*blocks: Block) -> set[int]:
    return {short(block.block_hash) for block in blocks}


def test_a_block_is_told_when_it_is_written_and_when_it_is_purged(stage: TierStage) -> None:
    mine, others = link("mine"), link("others")
    one = stage.block(stage.grant(mine), "one")
    two = stage.block(stage.grant(others), "two")
    stage.store(one, two)
    assert news(stage) == (shorts(one, two), set())
    stage.tier.purge(frozenset({tag(mine)}))
    assert news(stage) == (set(), shorts(one))
    assert stage.tier.residents.told() == list(shorts(two))


def test_what_is_corrupt_or_vanished_is_no_resident(
    stage: TierStage, store: SimulatedObjectStore
) -> None:
    blocks = [stage.block(stage.grant(link("mine")), name) for name in "ab"]
    stage.store(*blocks)
    news(stage)
    flipped, gone = [stat.key for stat in store.objects()]
    store.damage(flipped, lambda data: bytes(reversed(data)))
    store.delete([gone])
    stage.load(*map(stage.empty, blocks))
    assert news(stage) == (set(), shorts(*blocks))


def test_what_is_evicted_is_no_resident(store: SimulatedObjectStore) -> None:
    settings = small_settings(capacity_bytes=2 * OBJECT_BYTES)
    stage = TierStage(store, settings=settings).ready()
    chain = stage.grant(link("mine"))
    blocks = [stage.block(chain, name) for name in "abc"]
    for block in blocks:
        stage.store(block)
    assert stage.tier.counters()["evicted"], "the positive control"
    assert stage.tier.residents.told() == [], "nothing was taken yet"
    answers = stage.lookup(*blocks)
    there = [b for b, answer in zip(blocks, answers, strict=True) if answer is Presence.PRESENT]
    assert len(there) == 2
    assert news(stage) == (shorts(*there), set())
    stage.close()


def test_a_restart_knows_by_the_manifest_which_blocks_there_are(
    store: SimulatedObjectStore, tmp_path: Path
) -> None:
    settings = small_settings(tmp_path / "manifest")
    first = TierStage(store, settings=settings).ready()
    kept, gone = [first.block(first.grant(link("mine")), name) for name in "ab"]
    first.store(kept)
    before = {stat.key for stat in store.objects()}
    first.store(gone)
    after = {stat.key for stat in store.objects()}
    first.close()
    again = SimulatedObjectStore(beside=store)
    again.delete(list(after - before))
    second = TierStage(again, settings=settings).ready()
    assert news(second) == (shorts(kept), set())
    second.close()


def test_what_others_wrote_to_a_shared_store_is_known_once_it_was_looked_up(
    store: SimulatedObjectStore,
) -> None:
    settings = small_settings(shared=True, store_id=b"shared")
    writer = TierStage(store, settings=settings).ready()
    reader = TierStage(SimulatedObjectStore(beside=store), settings=settings).ready()
    chain = writer.grant(link("mine"))
    reader.grant(link("mine"))
    block = writer.block(chain, "one")
    writer.store(block)
    assert news(reader) == (set(), set())
    reader.lookup(block)
    assert news(reader) == (shorts(block), set())
    writer.close()
    reader.close()


def test_a_tier_says_what_it_is(stage: TierStage) -> None:
    place = stage.tier.place()
    assert (place.medium, place.store) == (Medium.DIRECTORY, b"")
    assert place.speed == stage.tier.speed()


def test_a_store_has_one_name_for_all_who_share_it_and_no_others() -> None:
    space, other = Fingerprint(bytes(32)), Fingerprint(b"1" * 32)
    urls = [
        *("valkey://10.0.0.5:6379", "valkey://10.0.0.6:6379", "valkey://10.0.0.5:6379/1"),
        *("s3://bucket/a", "s3://bucket/b", "s3://bucket/a?endpoint=http://10.0.0.5:80"),
        *("valkey://localhost:6379", "s3://bucket/a?endpoint=http://127.0.0.1:80"),
    ]
    assert len({store_id(url, space) for url in urls}) == len(urls)
    assert store_id(urls[0], space) != store_id(urls[0], other)
    assert store_id("valkey://user:word@10.0.0.5:6379", space) == store_id(urls[0], space)
    assert store_id("s3://bucket/a?region=x&access_key_id=k", space) == store_id(urls[3], space)
