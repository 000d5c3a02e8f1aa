"""Faults under the sealed tier (T1 to T9): each is a counted miss or a skip, never wrong bytes."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from scopekv.adapters.objects import DirectoryStore
from scopekv.core.admission import Admission
from scopekv.core.blocks import Fingerprint
from scopekv.core.chains import Chain, tag
from scopekv.ports import ObjectKey
from scopekv.simulate.object_store import SimulatedObjectStore
from scopekv.simulate.sealed_tier import BLOCK_BYTES, TierStage, link, small_settings
from scopekv.store.tier import Block, Presence

OBJECT_BYTES = BLOCK_BYTES + 48
UNTOUCHED = b"\xee" * BLOCK_BYTES
Start = Callable[..., TierStage]


@pytest.fixture
def start() -> Iterator[Start]:
    stages: list[TierStage] = []

    def begin(store: object, **settings: object) -> TierStage:
        admission = settings.pop("admission", None)
        more = {name: settings.pop(name) for name in ("namespace", "random") if name in settings}
        stage = TierStage(
            store,  # type: ignore[arg-type]
            settings=small_settings(**settings),  # type: ignore[arg-type]
            admission=admission,  # type: ignore[arg-type]
            **more,  # type: ignore[arg-type]
        )
        stages.append(stage)
        return stage.ready()

    yield begin
    for stage in stages:
        if isinstance(stage.store_, SimulatedObjectStore):
            stage.store_.resume()
        stage.close()


def key_of(store: SimulatedObjectStore, stage: TierStage, block: Block) -> ObjectKey:
    """Where a block lies: the one object that is new once it is stored."""
    before = set(store.stored)
    assert stage.store(block).ok == (0,)
    (key,) = set(store.stored) - before
    return key


def assert_refused_and_repaired(
    store: SimulatedObjectStore, stage: TierStage, block: Block, key: ObjectKey
) -> None:
    """A load finds it corrupt once, it is out of sight, and the next store writes it again."""
    corrupt = stage.tier.counters()["corrupt"]
    slot = stage.empty(block)
    assert stage.load(slot).ok == ()
    assert bytes(slot.view) == UNTOUCHED
    assert stage.tier.counters()["corrupt"] == corrupt + 1
    assert stage.tier.counters()["quarantined"] == corrupt + 1
    assert key not in store.stored
    assert stage.lookup(block) == [Presence.ABSENT]
    assert stage.store(block).ok == (0,)
    again = stage.empty(block)
    assert stage.load(again).ok == (0,)
    assert again.view == block.view


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


@pytest.mark.parametrize("what", DAMAGES)
def test_a_damaged_object_is_a_counted_miss_and_is_repaired(start: Start, what: str) -> None:
    store = SimulatedObjectStore()
    stage = start(store)
    chain = stage.grant(link("user"))
    block, sound = stage.block(chain, "one"), stage.block(chain, "two")
    key = key_of(store, stage, block)
    stage.store(sound)
    store.damage(key, DAMAGES[what])
    both = stage.empty(block), stage.empty(sound)
    assert stage.load(*both).ok == (1,), "the sound block of the job is kept"
    assert both[1].view == sound.view
    assert bytes(both[0].view) == UNTOUCHED
    assert stage.store(block).ok == (0,)
    store.damage(key, DAMAGES[what])
    assert_refused_and_repaired(store, stage, block, key)


@pytest.mark.parametrize("what", DAMAGES)
def test_a_damaged_file_is_a_counted_miss_and_is_repaired(
    start: Start, tmp_path: Path, what: str
) -> None:
    stage = start(DirectoryStore(tmp_path))
    block = stage.block(stage.grant(link("user")), "one")
    stage.store(block)
    (path,) = tmp_path.glob("r*/*")
    path.write_bytes(DAMAGES[what](path.read_bytes()))
    slot = stage.empty(block)
    assert stage.load(slot).ok == ()
    assert bytes(slot.view) == UNTOUCHED
    assert not path.exists()
    assert stage.tier.counters()["quarantined"] == 1
    assert stage.store(block).ok == (0,)
    assert stage.load(slot).ok == (0,)
    assert slot.view == block.view


@pytest.mark.parametrize("other_scope", ["user", "another user"])
def test_swapped_objects_do_not_open(start: Start, other_scope: str) -> None:
    store = SimulatedObjectStore()
    stage = start(store)
    one = stage.block(stage.grant(link("user")), "one")
    two = stage.block(stage.grant(link(other_scope)), "two")
    first, second = key_of(store, stage, one), key_of(store, stage, two)
    store.stored[first], store.stored[second] = store.stored[second], store.stored[first]
    assert_refused_and_repaired(store, stage, one, first)
    assert_refused_and_repaired(store, stage, two, second)


def test_an_old_epochs_object_does_not_open_in_its_place(start: Start) -> None:
    store = SimulatedObjectStore()
    stage = start(store)
    old = stage.block(stage.grant(link("user", 1)), "text")
    old_key = key_of(store, stage, old)
    new = stage.block(stage.grant(link("user", 2)), "text")
    new_key = key_of(store, stage, new)
    store.stored[new_key] = store.stored[old_key]
    assert_refused_and_repaired(store, stage, new, new_key)
    assert stage.lookup(old) == [Presence.ABSENT], "no lease of the old epoch is left"


def test_another_namespaces_object_does_not_open(start: Start) -> None:
    store = SimulatedObjectStore()
    stage = start(store)
    beside = SimulatedObjectStore(beside=store)
    other = start(beside, namespace=Fingerprint(b"o" * 32))
    chain = stage.grant(link("user"))
    other.grant(link("user"))
    theirs = other.block(chain, "text")
    their_key = key_of(beside, other, theirs)
    assert stage.lookup(theirs) == [Presence.ABSENT], "another namespace, another name"
    ours = stage.block(chain, "text")
    our_key = key_of(store, stage, ours)
    assert our_key != their_key
    store.stored[our_key] = store.stored[their_key]
    assert_refused_and_repaired(store, stage, ours, our_key)


def test_an_object_deleted_between_lookup_and_load_is_a_miss(start: Start) -> None:
    store = SimulatedObjectStore()
    stage = start(store)
    block = stage.block(stage.grant(link("user")), "one")
    key = key_of(store, stage, block)
    assert stage.lookup(block) == [Presence.PRESENT]
    del store.stored[key]
    slot = stage.empty(block)
    assert stage.load(slot).ok == ()
    assert bytes(slot.view) == UNTOUCHED
    assert stage.lookup(block) == [Presence.ABSENT], "no livelock: it is forgotten"
    assert stage.tier.counters()["corrupt"] == 0


def test_an_abandoned_load_never_writes(start: Start) -> None:
    store = SimulatedObjectStore()
    stage = start(store, stall_seconds=60.0)
    chain = stage.grant(link("user"))
    blocks = [stage.block(chain, f"{i}") for i in range(8)]
    stage.store(*blocks)
    store.hang("read")
    slots = [stage.empty(block) for block in blocks]
    job_id = stage.job()
    stage.tier.load(job_id, slots)
    stage.until(lambda: store.waiting > 0)
    stage.tier.abandon(job_id)
    assert stage.wait(job_id).ok == ()
    for slot in slots:
        slot.view[:] = b"\x11" * BLOCK_BYTES  # another request's bytes by now
    store.resume()
    assert stage.load(stage.empty(blocks[0])).ok == (0,)
    assert all(bytes(slot.view) == b"\x11" * BLOCK_BYTES for slot in slots)
    assert stage.tier.finished() == [], "the job was told once"


def test_a_hanging_store_ends_jobs_and_suspends_until_it_is_back(start: Start) -> None:
    store = SimulatedObjectStore()
    stage = start(store)
    chain = stage.grant(link("user"))
    block = stage.block(chain, "one")
    stage.store(block)
    store.hang()
    slot = stage.empty(block)
    assert stage.load(slot).ok == (), "given up, not waited for"
    assert stage.tier.speed().suspended
    assert stage.lookup(block) == [Presence.ABSENT]
    assert stage.store(stage.block(chain, "two")).ok == (0,), "skipped at once"
    assert stage.tier.counters()["stalls"] == 1
    store.resume()
    stage.until(lambda: not stage.tier.speed().suspended)
    assert stage.lookup(block) == [Presence.PRESENT]
    assert stage.load(slot).ok == (0,)
    assert slot.view == block.view


def test_more_hangs_than_workers_do_not_stop_the_tier(start: Start) -> None:
    store = SimulatedObjectStore()
    stage = start(store, workers=1, workers_max=2)
    chain = stage.grant(link("user"))
    blocks = [stage.block(chain, f"{i}") for i in range(6)]
    stage.store(*blocks)
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
    stage = start(store, random=random, stall_seconds=60.0)
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
    full = Admission(fill_fraction=1.0)
    stage = start(store, capacity_bytes=4 * OBJECT_BYTES, admission=full, recovery_seconds=30.0)
    chain = stage.grant(link("user"))
    stage.store(*[stage.block(chain, f"{i}") for i in range(4)])
    store.conduct.fail_writes = True
    more = stage.block(chain, "more")
    assert stage.store(more).ok == (0,), "not admitted yet"
    assert stage.store(more).ok == ()
    assert stage.tier.counters()["used_bytes"] == store.used_bytes() == 4 * OBJECT_BYTES


def test_a_slot_that_is_reused_while_a_store_hangs_is_not_kept(start: Start) -> None:
    """T2 for stores: what is sealed was the job's own while the job lasted."""
    store = SimulatedObjectStore()
    stage = start(store, workers=1, workers_max=1)
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


def test_a_store_out_of_reach_is_used_again_by_itself(start: Start) -> None:
    store = SimulatedObjectStore()
    stage = start(store)
    block = stage.block(stage.grant(link("user")), "one")
    stage.store(block)
    store.conduct.fail_reads = store.conduct.fail_writes = True
    assert stage.load(stage.empty(block)).ok == ()
    assert stage.lookup(block) == [Presence.ABSENT]
    store.conduct.fail_reads = store.conduct.fail_writes = False
    stage.until(lambda: stage.lookup(block) == [Presence.PRESENT])
    assert stage.load(stage.empty(block)).ok == (0,)


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


def test_keys_rotated_in_the_middle_of_a_read_give_nothing(start: Start) -> None:
    store = SimulatedObjectStore()
    stage = start(store, stall_seconds=60.0)
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


def test_a_flood_of_unique_blocks_stays_within_the_limit_and_the_shares(start: Start) -> None:
    capacity = 40 * OBJECT_BYTES
    store = SimulatedObjectStore()
    stage = start(store, capacity_bytes=capacity, admission=Admission(fill_fraction=1.0))
    quiet = stage.grant(link("quiet"), account=b"q" * 16)
    flood = stage.grant(link("flood"), account=b"f" * 16)
    own = [stage.block(quiet, f"{i}") for i in range(10)]
    stage.store(*own)
    for number in range(0, 400, 4):
        blocks = [stage.block(flood, f"{number + i}") for i in range(4)]
        for _ in range(2):  # admitted on the second offer once the tier is full
            assert stage.store(*blocks).ok == (0, 1, 2, 3)
        assert store.used_bytes() <= capacity
        assert stage.tier.counters()["used_bytes"] == store.used_bytes()
    assert stage.tier.counters()["evicted"] > 300, "it never stops evicting"
    assert stage.lookup(*own) == [Presence.PRESENT] * 10, "below its share nobody is evicted"
    assert set(stage.tier.used_by_account()) == {b"q" * 16, b"f" * 16}


def test_a_purge_leaves_nothing_that_a_hanging_put_could_bring_back(start: Start) -> None:
    store = SimulatedObjectStore()
    stage = start(store, stall_seconds=60.0)
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
    lists = [name for name, _ in store.calls].count("chains")
    stage.until(lambda: [name for name, _ in store.calls].count("chains") > lists + 2)
    assert stage.tier.purge(tags).busy > 0, "no success while a write is under way"
    store.resume()
    stage.until(lambda: stage.tier.purge(tags).busy == 0)
    assert stage.tier.purge(tags).error is None
    assert stage.wait(job_id).ok == ()
    assert {key.chain for key in beside.stored} == {key.chain for key in store.stored}
    assert [key.chain.count(tag(gone[0])) for key in store.stored] == [0]


def test_kill_9_in_the_middle_of_a_store_leaves_whole_objects_only(
    start: Start, tmp_path: Path
) -> None:
    root = tmp_path / "objects"
    writer = textwrap.dedent(
        f"""
        from scopekv.adapters.objects import DirectoryStore
        from scopekv.simulate.sealed_tier import TierStage, link
        stage = TierStage(DirectoryStore({str(root)!r})).ready()
        chain = stage.grant(link("user"))
        number = 0
        while True:
            stage.store(*[stage.block(chain, str(number + i)) for i in range(8)])
            number += 8
            print(number, flush=True)
        """
    )
    process = subprocess.Popen(
        [sys.executable, "-c", writer], stdout=subprocess.PIPE, text=True, env={**os.environ}
    )
    assert process.stdout is not None
    stored = 0
    while stored < 200:
        stored = int(process.stdout.readline())
    process.send_signal(signal.SIGKILL)
    process.wait(10)
    process.stdout.close()

    stage = start(DirectoryStore(root))
    chain: Chain = stage.grant(link("user"))
    blocks = [stage.block(chain, str(i)) for i in range(stored)]
    assert stage.lookup(*blocks) == [Presence.PRESENT] * stored
    slots = [stage.empty(block) for block in blocks]
    assert len(stage.load(*slots).ok) == stored
    assert all(slot.view == block.view for slot, block in zip(slots, blocks, strict=True))
    assert stage.tier.counters()["corrupt"] == 0
    assert [path.name for path in (root / ".tmp").iterdir()] == []


def test_closing_while_the_store_hangs_is_bounded(start: Start) -> None:
    store = SimulatedObjectStore()
    stage = start(store, close_seconds=0.2, stall_seconds=60.0)
    block = stage.block(stage.grant(link("user")), "one")
    store.hang()
    job_id = stage.job()
    stage.tier.store(job_id, [block])
    stage.tier.close()  # the time limit of the test run is the check
    assert stage.wait(job_id).ok == ()
