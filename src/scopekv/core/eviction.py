"""What leaves a full tier (L11): pure policies, the same for every tier and for the planner.

ScopedPolicy takes an account's blocks in an order of `core/orders.py`, and leaves only: a block
goes after every cached block that continues it, so a chain goes from its tail and no block is left
behind that nothing can reach. Between accounts:

    at or below its guarantee   loses nothing to another account
    above it                    of those furthest above, the one whose next block to go was used
                                longest ago gives it; the asking account may be the one
    but: an account above its guarantee evicts a block of its own that was never used again before
    another's block that was, so that a flood of unique prompts displaces itself
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, KeysView, Sequence
from operator import eq
from typing import Generic

from scopekv.core.lru import Entry, EvictionPolicy, K, LruPolicy
from scopekv.core.orders import GreedyDual, LearnedReuse, Order, Recency
from scopekv.core.runs import USES_MAX, YOUNG, Lane, Lanes, Run, Runs, ends
from scopekv.core.shares import Ledger, Shares
from scopekv.core.victims import RIVALS_MAX, Search
from scopekv.errors import Misuse

__all__ = [
    "RIVALS_MAX",
    "Entry",
    "EvictionPolicy",
    "GreedyDual",
    "LearnedReuse",
    "LruPolicy",
    "Order",
    "Recency",
    "ScopedPolicy",
    "Shares",
]


class ScopedPolicy(Generic[K]):
    """Leaves first, by recency or another order, with guaranteed shares.

    Blocks of a prompt that came in together are kept as one, a run, as long as they are used alike.
    Cost: O(log n) a step and a run of victims, amortised, times the number of different block
    sizes, and O(its blocks) where a run must be split.
    With blocks of different sizes the choice is greedy: a set that would just do can be missed
    when more than one block is asked for; a single block that may go never is.
    """

    def __init__(self, shares: Shares, order: Order[K] | None = None) -> None:
        self.shares = shares
        self._order: Order[K] = order or Recency()
        self._runs: Runs[K] = Runs()
        self._absent: dict[K, int] = {}  # cached children of keys that are not cached
        self._lanes: Lanes[K] = Lanes()
        self._young: dict[Run[K], None] = {}  # leaves since the last search: most become inner
        self._ledger = Ledger()
        self._offered: set[K] = set()  # the last victims: their removal is an eviction
        self._serial = 0

    def insert(self, key: K, entry: Entry[K]) -> None:
        self.insert_all((key,), (entry,))

    def insert_all(self, keys: Sequence[K], entries: Sequence[Entry[K]]) -> None:
        """`insert` each in this order. Cheaper where they follow one another in a prompt.

        Raises Misuse, and adds none, where one of the keys is cached already or comes twice.
        """
        runs, order, absent = self._runs, self._order, self._absent
        if not runs.keys().isdisjoint(keys) or len(set(keys)) != len(keys):
            raise Misuse("the block is cached already; touch it instead")
        if any(map(eq, keys, [entry.parent for entry in entries])):
            raise Misuse("a block is not its own parent")
        before: Run[K] | None = None  # whether it is a leaf, the next run shows
        lane, blocks = None, 0  # so many that are not counted yet, one after the other of one lane
        keys, start, serial = list(keys), 0, self._serial
        for end in ends(keys, entries) if order.by_use else range(1, len(keys) + 1):
            account, parent, _, size, _ = entry = entries[start]
            run = Run(keys[start:end], account, parent, size, serial + end)
            if before is not None and before.keys[-1] == parent:
                before.children += 1
            else:
                if before is not None:
                    self._enqueue(before)
                before = None if parent is None else self._continued(parent)
            order.insert(run, entry, before)
            if lane is None or not (
                account is lane.account and size == lane.size_bytes and run.kind == lane.kind
            ):
                self._join(lane, blocks)
                lane, blocks = self._lanes.of(run), 0
            run.lane = lane
            for key in run.keys:
                runs[key] = run
            if absent:
                self._adopt(run)
            blocks += end - start
            before, start = run, end
        self._serial += len(keys)
        self._join(lane, blocks)
        if before is not None:
            self._enqueue(before)

    def _adopt(self, run: Run[K]) -> None:
        """Give the blocks of a new run the children that were here before them."""
        for key in self._absent.keys() & run.keys:
            ending = self._runs.ending(key)
            if ending is not None:
                ending.children += self._absent.pop(key)

    def _continued(self, key: K) -> Run[K] | None:
        """A block has one child more; return the run that it ends, if it is cached."""
        run = self._runs.ending(key)
        if run is None:
            self._absent[key] = self._absent.get(key, 0) + 1
            return None
        run.children += 1
        if run.stamp == YOUNG:
            del self._young[run]
            run.stamp = 0
        return run

    def touch(self, key: K) -> None:
        self.touch_all((key,))

    def touch_all(self, keys: Iterable[K]) -> None:
        """`touch` each in this order. Cheaper where they follow one another in a prompt."""
        keys, runs, at = list(keys), self._runs, 0
        while at < len(keys):
            run = runs.get(keys[at])
            if run is None:
                at += 1
                continue
            if len(run.keys) > 1:
                run = runs.common(run, keys, at)
            blocks = len(run.keys)
            at += blocks
            self._serial += blocks
            run.used_at = self._serial
            if run.uses < USES_MAX:
                run.uses += 1
            before = run.kind
            self._order.touch(run)
            if run.kind != before:
                self._change_lane(run)

    def _change_lane(self, run: Run[K]) -> None:
        """A run is of another kind now."""
        lane = self._lanes.of(run)
        lane.blocks += len(run.keys)
        self._leave(run.lane, len(run.keys))
        run.lane = lane
        if run.stamp != YOUNG:
            run.stamp = 0
            self._enqueue(run)

    def remove(self, key: K) -> None:
        run = self._runs.alone(key)
        if run is None:
            return
        del self._runs[key]
        run.stamp = 0
        self._young.pop(run, None)
        if key in self._offered:
            self._offered.discard(key)
            self._order.evicted((run,))
        self._ledger.take(run.account, run.size_bytes)
        self._leave(run.lane, 1)
        if run.children:
            self._absent[key] = run.children
        if run.parent is not None:
            self._orphan(run.parent, 1)

    def pin(self, key: K) -> None:
        run = self._runs.ending(key)
        if run is None:
            raise Misuse("only a cached block can be pinned")
        run.pins += 1

    def unpin(self, key: K) -> None:
        run = self._runs.ending(key)
        if run is not None and run.pins:
            run.pins -= 1
            self._enqueue(run)

    def _join(self, lane: Lane[K] | None, blocks: int) -> None:
        """Count new blocks of a lane."""
        if lane is not None:
            lane.blocks += blocks
            self._ledger.add(lane.account, blocks * lane.size_bytes)

    def _leave(self, lane: Lane[K], blocks: int) -> None:
        """Count blocks out of their lane. Forget an account that holds nothing any more."""
        lane.blocks -= blocks
        lane.tidy()
        if not lane.blocks and self._lanes.drop(lane):
            self._order.emptied(lane.account)

    def _orphan(self, key: K, children: int) -> None:
        """So many children of a block have gone; it may be a leaf now."""
        if run := self._runs.get(key):
            run.children -= children
            self._enqueue(run)
        elif left := self._absent.get(key, 0) - children:
            self._absent[key] = left
        else:
            del self._absent[key]

    def _enqueue(self, run: Run[K]) -> None:
        if not (run.stamp or run.pins or run.children):
            run.stamp = YOUNG
            self._young[run] = None

    def _queue_young(self) -> None:
        for run in self._young:
            run.lane.push(run)
        self._young.clear()

    def victims(
        self, size_bytes: int, account: bytes, protected: Collection[K] = ()
    ) -> list[K] | None:
        search = self._search(size_bytes, account, protected)
        if search is None:
            return None
        self._put_back(search.taken)
        self._offered = set(search.victims)
        return search.victims

    def evict(
        self, size_bytes: int, account: bytes, protected: Collection[K] = ()
    ) -> list[K] | None:
        """`victims`, and `remove` of each. Cheaper: what is found need not be put back first."""
        search = self._search(size_bytes, account, protected)
        if search is None:
            return None
        for key, children in search.gone.items():
            self._orphan(key, children)
        for key in search.victims:
            del self._runs[key]
        for run, blocks in search.cut.items():
            del run.keys[-blocks:]
        self._order.evicted(search.taken)
        for lane, blocks in search.lost.items():
            self._ledger.take(lane.account, blocks * lane.size_bytes)
            self._leave(lane, blocks)
        self._offered = set()
        return search.victims

    def _search(
        self, size_bytes: int, account: bytes, protected: Collection[K]
    ) -> Search[K] | None:
        """One that found enough; what it took is out of its heap, and nowhere else yet."""
        guarantee = self.shares.guarantee_bytes(self._ledger.accounts_for(account))
        if not self._ledger.may_free(size_bytes, account, guarantee, self._lanes.unit):
            return None
        self._queue_young()
        search = Search(
            *(self._runs, self._lanes, self._order, self._ledger),
            account=account,
            guarantee=guarantee,
            smallest=self._lanes.smallest,
            protected=frozenset(protected),
        )
        enough = search.run(size_bytes)
        self._put_back(search.passed)
        if not enough:
            self._put_back(search.taken)
            return None
        return search

    def _put_back(self, runs: Iterable[Run[K]]) -> None:
        """Have leaves in their heaps again at the next search, if they are still there."""
        for run in runs:
            if not run.children:
                run.stamp = YOUNG
                self._young[run] = None

    def used_bytes(self, account: bytes | None = None) -> int:
        return self._ledger.used_bytes(account)

    def keys(self) -> KeysView[K]:
        """A view of what is cached, always as it is now."""
        return self._runs.keys()

    def __len__(self) -> int:
        return len(self._runs)

    def __contains__(self, key: object) -> bool:
        return key in self._runs
