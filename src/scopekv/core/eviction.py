"""What leaves a full tier (L11): pure policies, the same for every tier and for the planner.

ScopedPolicy takes an account's blocks in an order of `core/lanes.py`, and leaves only: a block
goes after every cached block that continues it, so a chain goes from its tail and no block is left
behind that nothing can reach. Between accounts:

    at or below its guarantee   loses nothing to another account
    above it                    of those furthest above, the one whose next block to go was used
                                longest ago gives it; the asking account may be the one
    but: an account above its guarantee evicts a block of its own that was never used again before
    another's block that was, so that a flood of unique prompts displaces itself
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterable
from typing import Generic

from scopekv.core.lanes import (
    USES_MAX,
    GreedyDual,
    Lane,
    LaneName,
    LearnedReuse,
    Node,
    Order,
    Recency,
)
from scopekv.core.lru import Entry, EvictionPolicy, K, LruPolicy
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

    Cost: O(log n) a step and a victim, amortised, times the number of different block sizes.
    With blocks of different sizes the choice is greedy: a set that would just do can be missed
    when more than one block is asked for; a single block that may go never is.
    """

    def __init__(self, shares: Shares, order: Order[K] | None = None) -> None:
        self.shares = shares
        self._order: Order[K] = order or Recency()
        self._nodes: dict[K, Node[K]] = {}
        self._children: dict[K, int] = {}  # cached children, also of keys that are not cached
        self._lanes: dict[bytes, dict[LaneName, Lane[K]]] = {}
        self._stamps = itertools.count(1)
        self._young: dict[K, Node[K]] = {}  # leaves since the last search: most become inner
        self._ledger = Ledger()
        self._offered: set[K] = set()  # the last victims: their removal is an eviction
        self._serial = 0
        self._smallest = 1 << 62  # of all blocks there ever were

    def insert(self, key: K, entry: Entry[K]) -> None:
        if key in self._nodes or key == entry.parent:
            raise Misuse("the block is cached already, or its own parent; touch it instead")
        self._serial += 1
        node = Node(key, entry, self._serial)
        parent = None if entry.parent is None else self._nodes.get(entry.parent)
        self._order.insert(node, parent)
        self._nodes[key] = node
        self._join(node)
        self._ledger.add(entry.account, entry.size_bytes)
        if entry.size_bytes < self._smallest:
            self._smallest = entry.size_bytes
        if entry.parent is not None:
            self._children[entry.parent] = self._children.get(entry.parent, 0) + 1
            if parent is not None and parent.young:
                del self._young[entry.parent]
                parent.young = False
        self._enqueue(node)

    def touch(self, key: K) -> None:
        node = self._nodes.get(key)
        if node is not None:
            self._serial += 1
            node.used_at = self._serial
            node.uses = min(node.uses + 1, USES_MAX)
            before = node.kind
            self._order.touch(node)
            if node.kind != before:
                self._leave(node.account, node.lane, 1)
                self._join(node)
                node.stamp = 0
                self._enqueue(node)

    def remove(self, key: K) -> None:
        node = self._nodes.pop(key, None)
        if node is None:
            return
        node.alive, node.stamp = False, 0
        self._young.pop(key, None)
        if key in self._offered:
            self._offered.discard(key)
            self._order.evicted(node)
        self._ledger.take(node.account, node.size_bytes)
        self._leave(node.account, node.lane, 1)
        self._empty(node.account)
        if node.parent is not None:
            self._orphan(node.parent, 1)

    def pin(self, key: K) -> None:
        if key not in self._nodes:
            raise Misuse("only a cached block can be pinned")
        self._nodes[key].pins += 1

    def unpin(self, key: K) -> None:
        node = self._nodes.get(key)
        if node is not None and node.pins:
            node.pins -= 1
            self._enqueue(node)

    def _join(self, node: Node[K]) -> None:
        """Count a block into the lane of its account, size and kind."""
        lanes = self._lanes.setdefault(node.account, {})
        name = node.size_bytes, node.kind
        lane = lanes.get(name)
        if lane is None:
            lane = lanes[name] = Lane(self._order, self._stamps, name)
        lane.blocks += 1
        node.lane = lane

    def _leave(self, account: bytes, lane: Lane[K], blocks: int) -> None:
        """Count blocks out of their lane."""
        lane.blocks -= blocks
        lane.tidy()
        if not lane.blocks:
            del self._lanes[account][lane.name]

    def _empty(self, account: bytes) -> None:
        """Forget an account that holds nothing any more."""
        if not self._lanes[account]:
            del self._lanes[account]
            self._order.emptied(account)

    def _orphan(self, key: K, children: int) -> None:
        """So many children of a block have gone; it may be a leaf now."""
        left = self._children[key] - children
        if left:
            self._children[key] = left
            return
        del self._children[key]
        if node := self._nodes.get(key):
            self._enqueue(node)

    def _enqueue(self, node: Node[K]) -> None:
        if not (node.stamp or node.young or node.pins or self._children.get(node.key)):
            node.young = True
            self._young[node.key] = node

    def _queue_young(self) -> None:
        for node in self._young.values():
            node.young = False
            node.lane.push(node)
        self._young.clear()

    def victims(
        self, size_bytes: int, account: bytes, protected: Collection[K] = ()
    ) -> list[K] | None:
        search = self._search(size_bytes, account, protected)
        if search is None:
            return None
        found = [node.key for node in search.taken]
        self._put_back(search.taken)
        self._offered = set(found)
        return found

    def evict(
        self, size_bytes: int, account: bytes, protected: Collection[K] = ()
    ) -> list[K] | None:
        """`victims`, and `remove` of each. Cheaper: what is found need not be put back first."""
        search = self._search(size_bytes, account, protected)
        if search is None:
            return None
        found, lanes = [], Counter[tuple[bytes, Lane[K]]]()
        for node in search.taken:
            del self._nodes[node.key]
            node.alive = False
            lanes[node.account, node.lane] += 1
            self._order.evicted(node)
            found.append(node.key)
        for (name, lane), blocks in lanes.items():
            self._leave(name, lane, blocks)
        for name, taken in search.draft.taken():
            self._ledger.take(name, taken)
            self._empty(name)
        for key, children in search.gone.items():
            self._orphan(key, children)
        self._offered = set()
        return found

    def _search(
        self, size_bytes: int, account: bytes, protected: Collection[K]
    ) -> Search[K] | None:
        """One that found enough; what it took is out of its heap, and nowhere else yet."""
        if size_bytes > self._ledger.used_bytes():
            return None
        self._queue_young()
        search = Search(
            *(self._nodes, self._children, self._lanes, self._order, self._ledger),
            account=account,
            guarantee=self.shares.guarantee_bytes(self._ledger.accounts_for(account)),
            smallest=self._smallest,
            protected=protected,
        )
        try:
            enough = search.run(size_bytes)
        finally:
            search.draft.close()
        self._put_back(search.passed)
        if not enough:
            self._put_back(search.taken)
            return None
        return search

    def _put_back(self, nodes: Iterable[Node[K]]) -> None:
        """Have them in their heaps again at the next search, if they are still there."""
        for node in nodes:
            node.young = True
            self._young[node.key] = node

    def used_bytes(self, account: bytes | None = None) -> int:
        return self._ledger.used_bytes(account)

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, key: object) -> bool:
        return key in self._nodes
