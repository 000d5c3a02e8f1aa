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

import math
from collections.abc import Collection, Iterable, KeysView, Sequence
from itertools import count
from operator import eq
from typing import Generic

from scopekv.core.lanes import (
    USES_MAX,
    YOUNG,
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
        self._absent: dict[K, int] = {}  # cached children of keys that are not cached
        self._lanes: dict[bytes, dict[LaneName, Lane[K]]] = {}
        self._stamps = count(1)
        self._young: dict[K, Node[K]] = {}  # leaves since the last search: most become inner
        self._ledger = Ledger()
        self._offered: set[K] = set()  # the last victims: their removal is an eviction
        self._serial = 0
        self._smallest, self._unit = 1 << 62, 0  # of all blocks there ever were: see `Ledger`

    def insert(self, key: K, entry: Entry[K]) -> None:
        self.insert_all((key,), (entry,))

    def insert_all(self, keys: Sequence[K], entries: Sequence[Entry[K]]) -> None:
        """`insert` each in this order. Cheaper where they follow one another in a prompt.

        Raises Misuse, and adds none, where one of the keys is cached already or comes twice.
        """
        nodes, order, absent = self._nodes, self._order, self._absent
        parents = [entry.parent for entry in entries]
        if not nodes.keys().isdisjoint(keys) or len(set(keys)) != len(keys):
            raise Misuse("the block is cached already; touch it instead")
        if any(map(eq, keys, parents)):
            raise Misuse("a block is not its own parent")
        before: Node[K] | None = None  # whether it is a leaf, the next block shows
        lane, blocks = None, 0  # so many that are not counted yet, one after the other of one lane
        for serial, key, entry, parent in zip(
            count(self._serial + 1), keys, entries, parents, strict=False
        ):
            node = nodes[key] = Node(key, entry, serial)
            if absent:
                node.children = absent.pop(key, 0)
            if before is not None and before.key == parent:
                before.children += 1
                order.insert(node, entry, before)
            else:
                if before is not None:
                    self._enqueue(before)
                order.insert(node, entry, None if parent is None else self._continued(parent))
            if lane is None or not (
                node.account is lane.account
                and node.size_bytes == lane.size_bytes
                and node.kind == lane.kind
            ):
                self._join(lane, blocks)
                lane, blocks = self._lane_of(node), 0
            node.lane = lane
            blocks += 1
            before = node
        self._serial += len(keys)
        self._join(lane, blocks)
        if before is not None:
            self._enqueue(before)

    def _continued(self, key: K) -> Node[K] | None:
        """A block has one child more; return it if it is cached."""
        node = self._nodes.get(key)
        if node is None:
            self._absent[key] = self._absent.get(key, 0) + 1
            return None
        node.children += 1
        if node.stamp == YOUNG:
            del self._young[key]
            node.stamp = 0
        return node

    def touch(self, key: K) -> None:
        self.touch_all((key,))

    def touch_all(self, keys: Iterable[K]) -> None:
        """`touch` each in this order."""
        nodes, order = self._nodes, self._order
        for key in keys:
            node = nodes.get(key)
            if node is None:
                continue
            self._serial += 1
            node.used_at = self._serial
            if node.uses < USES_MAX:
                node.uses += 1
            before = node.kind
            order.touch(node)
            if node.kind != before:
                other = self._lane_of(node)
                other.blocks += 1
                self._leave(node.lane, 1)
                node.lane = other
                if node.stamp != YOUNG:
                    node.stamp = 0
                    self._enqueue(node)

    def remove(self, key: K) -> None:
        node = self._nodes.pop(key, None)
        if node is None:
            return
        node.stamp = 0
        self._young.pop(key, None)
        if key in self._offered:
            self._offered.discard(key)
            self._order.evicted((node,))
        self._ledger.take(node.account, node.size_bytes)
        self._leave(node.lane, 1)
        if node.children:
            self._absent[key] = node.children
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

    def _lane_of(self, node: Node[K]) -> Lane[K]:
        """The lane of a block's account, size and kind."""
        lanes = self._lanes.setdefault(node.account, {})
        name = node.size_bytes, node.kind
        lane = lanes.get(name)
        if lane is None:
            lane = lanes[name] = Lane(self._stamps, node.account, *name)
            self._smallest = min(self._smallest, node.size_bytes)
            self._unit = math.gcd(self._unit, node.size_bytes)
        return lane

    def _join(self, lane: Lane[K] | None, blocks: int) -> None:
        """Count new blocks of a lane."""
        if lane is not None:
            lane.blocks += blocks
            self._ledger.add(lane.account, blocks * lane.size_bytes)

    def _leave(self, lane: Lane[K], blocks: int) -> None:
        """Count blocks out of their lane. Forget an account that holds nothing any more."""
        lane.blocks -= blocks
        lane.tidy()
        if not lane.blocks:
            lanes = self._lanes[lane.account]
            del lanes[lane.size_bytes, lane.kind]
            if not lanes:
                del self._lanes[lane.account]
                self._order.emptied(lane.account)

    def _orphan(self, key: K, children: int) -> None:
        """So many children of a block have gone; it may be a leaf now."""
        if node := self._nodes.get(key):
            node.children -= children
            self._enqueue(node)
        elif left := self._absent.get(key, 0) - children:
            self._absent[key] = left
        else:
            del self._absent[key]

    def _enqueue(self, node: Node[K]) -> None:
        if not (node.stamp or node.pins or node.children):
            node.stamp = YOUNG
            self._young[node.key] = node

    def _queue_young(self) -> None:
        for node in self._young.values():
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
        found = [node.key for node in search.taken]
        for key in found:
            del self._nodes[key]
        self._order.evicted(search.taken)
        for lane, blocks in search.lost.items():
            self._ledger.take(lane.account, blocks * lane.size_bytes)
            self._leave(lane, blocks)
        for key, children in search.gone.items():
            self._orphan(key, children)
        self._offered = set()
        return found

    def _search(
        self, size_bytes: int, account: bytes, protected: Collection[K]
    ) -> Search[K] | None:
        """One that found enough; what it took is out of its heap, and nowhere else yet."""
        guarantee = self.shares.guarantee_bytes(self._ledger.accounts_for(account))
        if not self._ledger.may_free(size_bytes, account, guarantee, self._unit):
            return None
        self._queue_young()
        search = Search(
            *(self._nodes, self._lanes, self._order, self._ledger),
            account=account,
            guarantee=guarantee,
            smallest=self._smallest,
            protected=protected,
        )
        enough = search.run(size_bytes)
        self._put_back(search.passed)
        if not enough:
            self._put_back(search.taken)
            return None
        return search

    def _put_back(self, nodes: Iterable[Node[K]]) -> None:
        """Have leaves in their heaps again at the next search, if they are still there."""
        for node in nodes:
            if not node.children:
                node.stamp = YOUNG
                self._young[node.key] = node

    def used_bytes(self, account: bytes | None = None) -> int:
        return self._ledger.used_bytes(account)

    def keys(self) -> KeysView[K]:
        """A view of what is cached, always as it is now."""
        return self._nodes.keys()

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, key: object) -> bool:
        return key in self._nodes
