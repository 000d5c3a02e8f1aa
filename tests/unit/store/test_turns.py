"""A tier without threads: nothing goes on but in turns, and turns may nest in a store's calls."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from scopekv.core.chains import tag
from scopekv.core.eviction import ScopedPolicy, Shares
from scopekv.errors import Unavailable
from scopekv.ports import ObjectKey
from scopekv.ports.objects import Bytes
from scopekv.simulate.object_store import SimulatedObjectStore
from scopekv.simulate.sealed_tier import NAMESPACE, SimulatedBroker, link
from scopekv.store.blocks import Block, Done, Purged
from scopekv.store.keyring import Keyring
from scopekv.store.settings import TierSettings
from scopekv.store.tier import SealedTier

A = link("a")
SIZE = 64


class Overtaken(SimulatedObjectStore):
    """A store in whose puts somebody else goes on."""

    meanwhile: Callable[[], object] | None = None
    in_delete: Callable[[], object] | None = None
    before_put: Callable[[], object] | None = None
    answers_late = False  # a put is done, and nobody hears of it in time
    now = 50.0

    def put(self, key: ObjectKey, parts: Sequence[Bytes]) -> None:
        if self.before_put is not None:
            self.before_put()
        super().put(key, parts)
        then, self.meanwhile = self.meanwhile, None
        if then is not None:
            then()
        if self.answers_late:
            raise Unavailable("no answer in time")

    def count(self, name: str) -> int:
        return [call for call, _ in self.calls].count(name)

    def delete(self, keys: Sequence[ObjectKey]) -> int:
        then, self.in_delete = self.in_delete, None
        if then is not None:
            then()
        return super().delete(keys)


def tier_over(store: Overtaken, capacity_bytes: int = 1 << 20) -> SealedTier:
    broker = SimulatedBroker()
    keyring = Keyring(broker, lambda: store.now, threaded=False)
    keyring.accept([broker.lease_of(A)])
    return SealedTier(
        store,
        keyring,
        namespace=NAMESPACE,
        block_bytes=SIZE,
        settings=TierSettings(capacity_bytes=capacity_bytes),
        policy=ScopedPolicy(Shares(capacity_bytes)),
        monotonic=lambda: store.now,
        threaded=False,
    )


def block(number: int) -> Block:
    return Block((A,), bytes([number]) * 32, 0, memoryview(bytearray([number]) * SIZE))


def test_nothing_goes_on_but_in_turns() -> None:
    before, store = threading.active_count(), Overtaken()
    tier = tier_over(store)
    work, purge, tidy = tier.turns
    tier.store(1, [block(1)])
    assert (threading.active_count(), tier.finished(), store.stored) == (before, [], {})
    assert work()
    assert not work()
    assert [done.ok for done in tier.finished()] == [(0,)]
    tidy()
    assert tier.ready
    assert tier.purge(frozenset({tag(A)})).busy == 1
    assert purge()
    assert not purge()
    assert tier.purge(frozenset({tag(A)})) == Purged(1, 0)
    assert store.stored == {}
    tier.close()


def test_a_purge_that_overtakes_a_put_leaves_nothing() -> None:
    store = Overtaken()
    tier = tier_over(store)
    work, purge, _ = tier.turns
    tags = frozenset({tag(A)})

    def overtake() -> None:
        tier.purge(tags)
        purge()

    store.meanwhile = overtake
    tier.store(1, [block(1)])
    assert work()
    assert tier.finished() == [Done(1, (), 0, 0.0)]
    assert store.stored == {}, "whether or not anybody asks again"
    told = tier.purge(tags)
    assert told.error is not None, "a put was under way: ask again"
    tier.purge(tags)
    purge()
    assert tier.purge(tags).error is None
    assert store.stored == {}
    assert tier.counters()["used_bytes"] == 0
    tier.close()


def test_a_put_that_comes_after_the_walk_of_a_purge_is_taken_back() -> None:
    """Whether or not anybody asks again: who asked for the purge may be gone."""
    store = Overtaken()
    tier = tier_over(store)
    work, purge, _ = tier.turns

    def overtake() -> None:
        tier.purge(frozenset({tag(A)}))
        purge()

    store.before_put = overtake
    tier.store(1, [block(1)])
    assert work()
    assert (store.count("put"), store.stored) == (1, {})
    assert tier.counters()["used_bytes"] == 0
    tier.close()


def test_a_closed_tier_has_no_name_and_no_cipher() -> None:
    tier = tier_over(Overtaken())
    tier.store(1, [block(1)])
    assert tier.turns[0]()
    objects = tier._parts.objects
    assert objects._addresses
    tier.close()
    assert (len(objects._addresses), len(objects._cipher)) == (0, 0)


def test_a_purge_that_overtakes_an_eviction_counts_no_byte_that_was_never_put() -> None:
    store = Overtaken()
    tier = tier_over(store, capacity_bytes=SIZE + 48)
    work, _, _ = tier.turns
    tier.store(1, [block(1)])
    assert work()
    tier.store(2, [block(2)])
    store.conduct.fail_writes = True
    store.in_delete = lambda: tier.purge(frozenset({tag(A)}))
    assert work()
    assert store.in_delete is None, "the positive control: it was overtaken"
    assert tier.counters()["used_bytes"] == SIZE + 48, "the one that could not be deleted"
    tier.close()


def test_no_put_begins_after_a_purge() -> None:
    """One that began would be under way while the purge is told to be through."""
    store = Overtaken()
    tier = tier_over(store, capacity_bytes=SIZE + 48)
    work, purge, _ = tier.turns
    tier.store(1, [block(1)])
    assert work()
    tier.store(2, [block(2)])
    store.in_delete = lambda: tier.purge(frozenset({tag(A)}))
    assert work()
    assert store.count("put") == 1
    purge()
    assert tier.purge(frozenset({tag(A)})).error is None
    assert (store.stored, tier.counters()["used_bytes"]) == ({}, 0)
    tier.close()


def test_nothing_is_sealed_under_a_lease_that_is_over() -> None:
    store = Overtaken()
    tier = tier_over(store)
    work, _, _ = tier.turns
    tier.store(1, [block(1)])
    store.now += 601.0
    assert work()
    assert tier.finished() == [Done(1, (), 0, 601.0)]
    assert store.count("put") == 0
    tier.close()


def test_what_waits_behind_trouble_does_not_call_the_store() -> None:
    store = Overtaken()
    tier = tier_over(store)
    work, _, _ = tier.turns
    tier.store(1, [block(1), block(2)])
    assert work()
    assert work()
    tier.store(2, [block(3), block(4)])
    store.conduct.fail_writes = True
    assert work()
    assert work()
    assert store.count("put") == 3, "the fourth is not tried"
    tier.load(3, [block(1), block(2)])
    store.conduct.fail_reads = True
    assert work()
    assert work()
    assert store.count("get") == 1, "nor the second load"
    assert [len(done.ok) for done in tier.finished()] == [2, 0, 0]
    tier.close()


def test_a_put_whose_answer_came_too_late_counts_and_is_taken_back() -> None:
    store = Overtaken()
    tier = tier_over(store)
    work, _, tidy = tier.turns
    store.answers_late = True
    tier.store(1, [block(1)])
    assert work()
    assert [done.ok for done in tier.finished()] == [()]
    assert tier.counters()["used_bytes"] == store.used_bytes() == SIZE + 48
    store.answers_late = False
    store.now += 60.0
    tidy()
    assert (store.stored, tier.counters()["used_bytes"]) == ({}, 0)
    tier.close()


def test_an_object_that_is_forgotten_while_it_is_put_counts_on() -> None:
    """As by a load of the same block that finds nothing yet."""
    store = Overtaken()
    tier = tier_over(store)
    store.meanwhile = lambda: tier._parts.index.forget(list(store.stored))
    tier.store(1, [block(1)])
    assert tier.turns[0]()
    assert tier.counters()["used_bytes"] == store.used_bytes() == SIZE + 48
    tier.close()


def test_a_task_that_is_in_a_call_leaves_other_desks_free() -> None:
    store = Overtaken()
    tier = tier_over(store)
    work = tier.turns[0]
    store.meanwhile = work
    tier.store(1, [block(1)])
    tier.store(2, [block(2)])
    assert work(), "the second put is done within the first"
    assert not work()
    assert sorted(done.job_id for done in tier.finished()) == [1, 2]
    assert tier.counters()["stored"] == 2
    tier.close()
