"""Cases I2, I9 and T10 on every adapter: no hit across scopes, purges, and stolen bytes."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator

import pytest

from scopekv.core.chains import Chain, Link, Tag, folder, holds_any, tag
from scopekv.core.sealing import Identity
from scopekv.errors import Corrupt
from scopekv.ports import ObjectKey
from scopekv.simulate.object_store import SimulatedObjectStore
from scopekv.simulate.sealed_tier import (
    BLOCK_BYTES,
    NAMESPACE,
    SimulatedBroker,
    TierStage,
    link,
    small_settings,
)
from scopekv.store.keyring import Keyring
from scopekv.store.sealed_objects import Address, SealedObjects
from scopekv.store.tier import Block, Purged
from tests.cases.conftest import Start
from tests.cases.test_tier_cases import ABSENT, DAMAGES, PRESENT, assert_loads, stored
from tests.cases.tier_places import OBJECT_BYTES, Place, ServerPlace


def in_chain(block: Block, chain: Chain) -> Block:
    """The same tokens, block hash and content under another chain."""
    return Block(chain, block.block_hash, block.group_idx, memoryview(bytearray(block.view)))


def purge(stage: TierStage, *links: Link) -> Purged:
    """Purge the (scope, epoch) pairs until nothing is busy."""
    tags = frozenset(map(tag, links))
    answers: list[Purged] = []

    def over() -> bool:
        answers.append(stage.tier.purge(tags))
        return answers[-1].busy == 0

    stage.until(over)
    return answers[-1]


def of(keys: set[ObjectKey], *tags: Tag) -> set[ObjectKey]:
    return {key for key in keys if holds_any(key.chain, tags)}


# --- I2 -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("shared_prefix", [False, True])
def test_i2_the_same_tokens_in_two_scopes(place: Place, start: Start, shared_prefix: bool) -> None:
    """Written, the engine started anew, read back: a hit within the scope, none across."""
    head = (link("document"),) if shared_prefix else ()
    names = ("alice", "bob")

    def begin() -> tuple[TierStage, Chain, Chain]:
        stage = start()
        alice, bob = (stage.grant(*head, link(name)) for name in names)
        return stage, alice, bob

    first, alice, bob = begin()
    hers = first.block(alice, "the same tokens")
    his = in_chain(hers, bob)
    his.view[:] = b"\x0b" * BLOCK_BYTES
    stored(place, first, hers)
    assert first.lookup(hers, his) == [PRESENT, ABSENT]
    first.close()

    second, alice, bob = begin()
    assert second.lookup(hers, his) == [PRESENT, ABSENT]
    slot = second.empty(his)
    assert second.load(slot).ok == ()
    assert bytes(slot.view) == b"\xee" * BLOCK_BYTES
    assert_loads(second, hers)
    stored(place, second, his)
    assert len(place.names()) == 2, "one object for each, though the tokens are the same"
    assert_loads(second, his)
    assert_loads(second, hers)


def test_i2_a_document_is_a_hit_for_all_who_may_read_it_and_for_them_alone(
    place: Place, start: Start
) -> None:
    stage = start()
    document = stage.grant(link("document"))
    text = stage.block(document, "text")
    stored(place, stage, text)
    stage.close()
    reader = start()
    reader.grant(link("document"), link("bob"))
    assert_loads(reader, text)
    reader.close()
    stranger = start()
    alone = stranger.grant(link("eve"))
    assert stranger.lookup(text, in_chain(text, alone)) == [ABSENT, ABSENT]
    assert stranger.load(stranger.empty(text)).ok == ()


# --- I9 -----------------------------------------------------------------------------------------


def test_i9_a_purge_removes_what_it_says_and_the_resent_prompt_is_a_miss(
    place: Place, start: Start
) -> None:
    stage = start(janitor_seconds=600.0)  # it removes, too, and counts apart
    gone, kept = stage.grant(link("gone")), stage.grant(link("kept"))
    under = stage.grant(link("kept"), link("gone"))
    theirs = [stage.block(gone, "0"), stage.block(gone, "1"), stage.block(under, "2")]
    ours = stage.block(kept, "0")
    assert stage.store(*theirs, ours).ok == (0, 1, 2, 3)
    assert stage.lookup(*theirs, ours) == [PRESENT] * 4, "the positive control"
    doomed = of(place.names(), tag(gone[0]))
    assert len(doomed) == 3
    assert purge(stage, *gone) == Purged(3, 0)
    assert len(place.names()) == 1
    assert of(place.names(), tag(gone[0])) == set()
    stage.grant(*under)  # a late lease of the old epoch is refused
    assert stage.lookup(*theirs, ours) == [ABSENT] * 3 + [PRESENT]
    assert stage.load(*map(stage.empty, theirs)).ok == ()
    assert stage.store(*theirs).ok == (0, 1, 2), "skipped"
    assert len(place.names()) == 1, "a late store leaves nothing behind"
    assert_loads(stage, ours)
    again = in_chain(theirs[0], stage.grant(link("gone", 2)))
    assert stage.lookup(again) == [ABSENT], "resent in the next epoch"
    stored(place, stage, again)
    assert_loads(stage, again)


def test_i9_a_purge_reaches_what_another_process_wrote(place: Place, start: Start) -> None:
    """Before and after this one has listed the store, and without any lease."""
    other = start()
    chains = [other.grant(link("gone"), link(f"session {n}")) for n in range(12)]
    kept = other.block(other.grant(link("kept")), "0")
    assert len(other.store(*(other.block(chain, "0") for chain in chains), kept).ok) == 13
    other.close()
    stage = start(janitor_seconds=600.0)
    late = folder((link("gone"), link("late")), 3600)
    assert late is not None
    place.write(ObjectKey(late, "ab" * 20), bytes(OBJECT_BYTES))
    done = purge(stage, link("gone"))
    assert (done.busy, done.error) == (0, None)
    assert done.removed <= 13, "the janitor, which looks at its start, may have been there first"
    assert len(place.names()) == 1
    stage.grant(link("kept"))
    assert_loads(stage, kept)
    assert stage.tier.counters()["objects"] == 1


def test_i9_a_purge_reaches_quarantined_bytes(place: Place, start: Start) -> None:
    """Also where nothing else is left of their folder."""
    stage = start()
    gone, kept = stage.grant(link("gone")), stage.grant(link("kept"))
    blocks = [stage.block(gone, "0"), stage.block(kept, "0")]
    for block in blocks:
        key = stored(place, stage, block)
        place.write(key, DAMAGES["a flipped bit in the tag"](place.read(key)))
        assert stage.load(stage.empty(block)).ok == ()
    assert place.names() == set()
    assert len(place.aside()) == (2 if place.quarantines else 0)
    assert purge(stage, *gone).error is None
    assert of(place.aside(), tag(gone[0])) == set()
    assert len(place.aside()) == (1 if place.quarantines else 0)


def test_i9_a_purge_that_cannot_delete_is_no_success(place: Place, start: Start) -> None:
    stage = start(place.client(2.0) if isinstance(place, ServerPlace) else None)
    gone = stage.grant(link("gone"))
    block = stage.block(gone, "0")
    stored(place, stage, block)
    with _trouble(place):
        answer = purge(stage, *gone)
        assert answer.error is not None
        assert answer.removed == 0
        assert stage.lookup(block) == [ABSENT], "fenced all the same"
    stage.until(lambda: purge(stage, *gone).error is None)
    assert place.names() == set()


@contextlib.contextmanager
def _trouble(place: Place) -> Iterator[None]:
    """A server that hangs, anything else out of reach."""
    if isinstance(place, ServerPlace):
        place.pause()
        yield
        place.go_on()
    else:
        place.stop()
        yield
        place.restart()


# --- T10 ----------------------------------------------------------------------------------------


def test_t10_stolen_bytes_and_one_workers_keys(place: Place, start: Start) -> None:
    """The thief has every byte of the store, the code, every name, and one worker's keyring."""
    stage = start()
    leased = [(link("org"),), (link("org"), link("alice"))]
    others = [
        (link("bob"),),
        (link("org"), link("bob")),
        (link("alice"),),  # her scope where it stands first: another chain, other keys
        (link("org", 2), link("alice")),
    ]
    blocks: dict[ObjectKey, Block] = {}
    for chain in (*leased, *others):
        stage.grant(*chain)
        block = stage.block(chain, "text", bytes(BLOCK_BYTES))
        blocks[stored(place, stage, block)] = block
    loot = {key: place.read(key) for key in place.names()}
    stage.close()

    broker = SimulatedBroker()
    keyring = Keyring(broker)
    keyring.accept(broker.lease_of(one) for one in (link("org"), link("alice")))
    thief = SealedObjects(keyring, NAMESPACE, BLOCK_BYTES)
    everywhere = [link("org"), link("org", 2), link("alice"), link("bob")]
    chains = [*itertools.permutations(everywhere, 1), *itertools.permutations(everywhere, 2)]
    rings = {chain: keys for chain in chains if (keys := keyring.chain(chain)) is not None}
    assert len(rings) == 4, "of the two scopes, alone and in either order"
    opened = set()
    for key, content in loot.items():
        chain, block_hash = blocks[key].chain, blocks[key].block_hash
        identity = Identity(NAMESPACE, chain, block_hash, 0, BLOCK_BYTES)
        assert (thief.address(chain, block_hash, 0) is not None) == (chain in rings)
        for keys in rings.values():
            if _opens(thief, Address(key, identity, keys, bytes(16), 3600), content):
                opened.add(chain)
    assert opened == {*leased, (link("alice"),)}
    keyring.close()


def _opens(objects: SealedObjects, address: Address, content: bytes) -> bool:
    try:
        objects.open(address, memoryview(bytearray(content)))
    except Corrupt:
        return False
    return True


def test_t10_a_stolen_store_under_a_workers_own_tier(place: Place, start: Start) -> None:
    stage = start()
    chains = [stage.grant(link(name)) for name in ("leased", "other")]
    blocks = [stage.block(chain, "text") for chain in chains]
    keys = [stored(place, stage, block) for block in blocks]
    copy = SimulatedObjectStore()
    for key in keys:
        copy.put(key, [place.read(key)])
    thief = TierStage(copy, settings=small_settings()).ready()
    thief.grant(link("leased"))
    assert thief.lookup(*blocks) == [PRESENT, ABSENT]
    assert thief.load(*map(thief.empty, blocks)).ok == (0,)
    thief.keyring.fence([tag(link("leased"))])
    assert thief.lookup(*blocks) == [ABSENT, ABSENT]
    assert thief.load(*map(thief.empty, blocks)).ok == ()
    thief.close()
