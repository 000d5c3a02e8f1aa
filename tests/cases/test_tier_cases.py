"""Cases T1, T2, T7 and T9 on every adapter: damage, late answers, objects gone or moved."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from scopekv.core.blocks import Fingerprint
from scopekv.core.chains import tag
from scopekv.ports import ObjectKey
from scopekv.simulate.sealed_tier import BLOCK_BYTES, TierStage, link
from scopekv.store.tier import Block, Presence
from tests.cases.conftest import Start
from tests.cases.tier_places import OBJECT_BYTES, Gate, Place

UNTOUCHED = b"\xee" * BLOCK_BYTES
ANOTHERS = b"\x11" * BLOCK_BYTES
ABSENT, PRESENT = Presence.ABSENT, Presence.PRESENT

DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "a flipped bit in the ciphertext": lambda b: b[:700] + bytes([b[700] ^ 4]) + b[701:],
    "a flipped bit in the tag": lambda b: b[:-1] + bytes([b[-1] ^ 1]),
    "a flipped bit in the nonce": lambda b: b[:9] + bytes([b[9] ^ 128]) + b[10:],
    "appended bytes": lambda b: b + b"more",
    "much appended": lambda b: b + bytes(3 * OBJECT_BYTES),
    "one byte cut off": lambda b: b[:-1],
    "cut in half": lambda b: b[: len(b) // 2],
    "cut in the header": lambda b: b[:20],
    "nothing left": lambda _: b"",
    "a garbage header": lambda b: b"\xa5" * 32 + b[32:],
    "another length in the header": lambda b: b[:20] + bytes(8) + b[28:],
    "zeroes": lambda b: bytes(len(b)),
}


def stored(place: Place, stage: TierStage, block: Block) -> ObjectKey:
    """Store a block; where it lies is the one object that is new."""
    before = place.names()
    assert stage.store(block).ok == (0,)
    (key,) = place.names() - before
    return key


def assert_loads(stage: TierStage, block: Block) -> None:
    slot = stage.empty(block)
    assert stage.load(slot).ok == (0,)
    assert slot.view == block.view


def assert_a_counted_miss_quarantined_and_repaired(
    place: Place, stage: TierStage, block: Block, key: ObjectKey
) -> None:
    before = stage.tier.counters()
    slot = stage.empty(block)
    assert stage.load(slot).ok == ()
    assert bytes(slot.view) == UNTOUCHED
    after = stage.tier.counters()
    for name in ("corrupt", "quarantined", "load_misses"):
        assert after[name] == before[name] + 1, name
    assert key not in place.names()
    assert (key in place.aside()) == place.quarantines
    assert stage.lookup(block) == [ABSENT]
    assert stage.store(block).ok == (0,)
    assert key in place.names()
    assert stage.lookup(block) == [PRESENT]
    assert_loads(stage, block)


@pytest.mark.parametrize("what", DAMAGES)
def test_t1_a_damaged_object(place: Place, start: Start, what: str) -> None:
    stage = start()
    chain = stage.grant(link("user"))
    block, sound = stage.block(chain, "one"), stage.block(chain, "two")
    key = stored(place, stage, block)
    stage.store(sound)
    place.write(key, DAMAGES[what](place.read(key)))
    both = stage.empty(block), stage.empty(sound)
    assert stage.load(*both).ok == (1,), "the sound block of the job is kept"
    assert both[1].view == sound.view
    assert bytes(both[0].view) == UNTOUCHED
    assert stage.store(block).ok == (0,)
    place.write(key, DAMAGES[what](place.read(key)))
    assert_a_counted_miss_quarantined_and_repaired(place, stage, block, key)


def test_t1_two_objects_of_one_scope_swapped(place: Place, start: Start) -> None:
    stage = start()
    chain = stage.grant(link("user"))
    one, two = stage.block(chain, "one"), stage.block(chain, "two")
    first, second = stored(place, stage, one), stored(place, stage, two)
    swapped = place.read(second), place.read(first)
    place.write(first, swapped[0])
    place.write(second, swapped[1])
    assert_a_counted_miss_quarantined_and_repaired(place, stage, one, first)
    assert_a_counted_miss_quarantined_and_repaired(place, stage, two, second)


def test_t1_a_listing_under_way_does_not_bring_it_back(place: Place, start: Start) -> None:
    """It was listed before it was quarantined; were it noted again, no store would rewrite it."""
    gate = Gate(place.open())
    stage = start(gate, inventory_seconds=0.005)
    block = stage.block(stage.grant(link("user")), "one")
    key = stored(place, stage, block)
    place.write(key, DAMAGES["zeroes"](place.read(key)))
    gate.hold("objects")
    stage.until(lambda: gate.waiting > 0)
    gate.let_waiting_through()  # one that may have begun before the object was there
    stage.until(lambda: gate.waiting > 0)
    assert stage.load(stage.empty(block)).ok == ()
    gate.let_waiting_through()
    stage.until(lambda: gate.waiting > 0)  # the next listing: that one is over
    assert stage.tier.counters()["objects"] == 0
    assert stage.store(block).ok == (0,)
    assert_loads(stage, block)


@pytest.mark.parametrize("failure", ["abandoned", "corrupt", "gone", "purged"])
def test_t2_a_failed_load_writes_nothing_into_a_slot_that_is_anothers_by_now(
    place: Place, start: Start, failure: str
) -> None:
    """The answers come after the job is over, with the bytes in the workers' buffers."""
    gate = Gate(place.open())
    stage = start(gate)
    chain, other = stage.grant(link("user")), stage.grant(link("other"))
    blocks = [stage.block(chain, f"{i}") for i in range(6)]
    keys = [stored(place, stage, block) for block in blocks]
    for key in keys if failure == "corrupt" else ():
        place.write(key, DAMAGES["a flipped bit in the tag"](place.read(key)))
    for key in keys if failure == "gone" else ():
        place.remove(key)
    gate.hold("get")
    slots = [stage.empty(block) for block in blocks]
    job_id = stage.job()
    stage.tier.load(job_id, slots)
    stage.until(lambda: gate.waiting > 0)
    if failure == "purged":
        stage.tier.purge(frozenset(map(tag, chain)))
    else:
        stage.tier.abandon(job_id)
    assert stage.wait(job_id).ok == ()
    for slot in slots:
        slot.view[:] = ANOTHERS
    gate.let_through()
    kept = stage.block(other, "kept")
    assert stage.store(kept).ok == (0,)
    assert_loads(stage, kept)  # it stood in the queue behind all that was left of the job
    stage.until(lambda: not gate.waiting)
    assert all(bytes(slot.view) == ANOTHERS for slot in slots)
    assert stage.tier.finished() == [], "the job was told once"


def test_t2_a_failed_store_keeps_no_byte_of_the_next_user_of_its_slot(
    place: Place, start: Start
) -> None:
    gate = Gate(place.open())
    stage = start(gate, workers=1, workers_max=1)
    chain = stage.grant(link("user"))
    blocks = [stage.block(chain, f"{i}") for i in range(4)]
    contents = [bytes(block.view) for block in blocks]
    gate.hold("put")
    job_id = stage.job()
    stage.tier.store(job_id, blocks)
    stage.until(lambda: gate.waiting > 0)
    stage.tier.abandon(job_id)
    assert stage.wait(job_id).ok == ()
    for block in blocks:
        block.view[:] = ANOTHERS
    gate.let_through()
    assert stage.store(stage.block(chain, "behind them")).ok == (0,)  # by the one worker
    for block, content in zip(blocks, contents, strict=True):
        slot = stage.empty(block)
        if stage.load(slot).ok:
            assert bytes(slot.view) == content, "sealed while the slot was the job's own"
        again = Block(block.chain, block.block_hash, 0, memoryview(bytearray(content)))
        assert stage.store(again).ok == (0,)
        assert_loads(stage, again)
    assert stage.tier.counters()["corrupt"] == 0


def test_t7_an_object_deleted_between_lookup_and_load(place: Place, start: Start) -> None:
    stage = start()
    block = stage.block(stage.grant(link("user")), "one")
    key = stored(place, stage, block)
    assert stage.lookup(block) == [PRESENT]
    place.remove(key)
    slot = stage.empty(block)
    assert stage.load(slot).ok == ()
    assert bytes(slot.view) == UNTOUCHED
    assert stage.lookup(block) == [ABSENT], "no livelock: it is forgotten"
    counters = stage.tier.counters()
    assert (counters["load_misses"], counters["corrupt"], counters["errors"]) == (1, 0, 0)
    assert stage.store(block).ok == (0,)
    assert_loads(stage, block)


@pytest.mark.parametrize("other", ["the same scope", "another scope", "an end user's scope"])
def test_t9_an_object_copied_over_another(place: Place, start: Start, other: str) -> None:
    stage = start()
    user = stage.grant(link("user"))
    chains = {
        "the same scope": user,
        "another scope": stage.grant(link("another")),
        "an end user's scope": stage.grant(link("user"), link("end user")),
    }
    content = bytes(BLOCK_BYTES)  # the same plaintext: only names, scopes and keys differ
    ours = stage.block(user, "ours", content)
    theirs = stage.block(chains[other], "theirs", content)
    our_key, their_key = stored(place, stage, ours), stored(place, stage, theirs)
    place.write(our_key, place.read(their_key))
    assert_a_counted_miss_quarantined_and_repaired(place, stage, ours, our_key)
    assert_loads(stage, theirs)


def test_t9_an_old_epochs_object_in_the_new_ones_place(place: Place, start: Start) -> None:
    stage = start()
    old = stage.block(stage.grant(link("user", 1)), "text", bytes(BLOCK_BYTES))
    old_key = stored(place, stage, old)
    assert_loads(stage, old)
    new = stage.block(stage.grant(link("user", 2)), "text", bytes(BLOCK_BYTES))
    new_key = stored(place, stage, new)
    place.write(new_key, place.read(old_key))
    assert_a_counted_miss_quarantined_and_repaired(place, stage, new, new_key)
    assert stage.lookup(old) == [ABSENT], "no lease of the old epoch is left"
    assert stage.load(stage.empty(old)).ok == ()


def test_t9_another_namespaces_object(place: Place, start: Start) -> None:
    """Another model, revision, dtype or layout: the same tokens are other bytes."""
    elsewhere = start(namespace=Fingerprint(b"o" * 32))
    chain = elsewhere.grant(link("user"))
    theirs = elsewhere.block(chain, "text")
    their_key = stored(place, elsewhere, theirs)
    elsewhere.close()
    stage = start()
    stage.grant(link("user"))
    assert stage.lookup(theirs) == [ABSENT], "another namespace, another name"
    ours = stage.block(chain, "text")
    our_key = stored(place, stage, ours)
    place.write(our_key, place.read(their_key))
    assert_a_counted_miss_quarantined_and_repaired(place, stage, ours, our_key)
