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
from collections.abc import Collection
from typing import Generic

from scopekv.core.lanes import USES_MAX, GreedyDual, Lane, LearnedReuse, Node, Order, Rank, Recency
from scopekv.core.lru import Entry, EvictionPolicy, K, LruPolicy
from scopekv.core.shares import Draft, Ledger, Shares
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

# So many accounts furthest above their guarantee compete by age: enough to come near to what was
# used longest ago of all that is lent, and a bound on what a victim costs.
RIVALS_MAX = 8

_LaneKey = tuple[int, tuple[int, ...]]  # size, kind


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
        self._lanes: dict[bytes, dict[_LaneKey, Lane[K]]] = {}
        self._stamps = itertools.count(1)
        self._young: dict[K, Node[K]] = {}  # leaves since the last search: most become inner
        self._ledger = Ledger()
        self._offered: set[K] = set()  # the last victims: their removal is an eviction
        self._serial = 0

    def insert(self, key: K, entry: Entry[K]) -> None:
        if key in self._nodes or key == entry.parent:
            raise Misuse("the block is cached already, or its own parent; touch it instead")
        self._serial += 1
        node = Node(key, entry, self._serial)
        parent = None if entry.parent is None else self._nodes.get(entry.parent)
        self._order.insert(node, parent)
        self._nodes[key] = node
        self._lane_of(node).blocks += 1
        self._ledger.add(entry.account, entry.size_bytes)
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
            before = node.size_bytes, node.kind
            self._order.touch(node)
            if node.kind != before[1]:
                self._leave(node, before)
                self._lane_of(node).blocks += 1
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
        self._leave(node, (node.size_bytes, node.kind))
        if not self._lanes[node.account]:
            del self._lanes[node.account]
            self._order.emptied(node.account)
        if node.parent is not None:
            left = self._children[node.parent] - 1
            if left:
                self._children[node.parent] = left
                return
            del self._children[node.parent]
            if parent := self._nodes.get(node.parent):
                self._enqueue(parent)

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
        lanes = self._lanes.setdefault(node.account, {})
        name = node.size_bytes, node.kind
        lane = lanes.get(name)
        if lane is None:
            lane = lanes[name] = Lane(self._order, self._stamps)
        return lane

    def _leave(self, node: Node[K], name: _LaneKey) -> None:
        """Count a block out of its lane."""
        lanes = self._lanes[node.account]
        lane = lanes[name]
        lane.blocks -= 1
        lane.tidy()
        if not lane.blocks:
            del lanes[name]

    def _enqueue(self, node: Node[K]) -> None:
        if not (node.stamp or node.young or node.pins or self._children.get(node.key)):
            node.young = True
            self._young[node.key] = node

    def _queue_young(self) -> None:
        for node in self._young.values():
            node.young = False
            self._lane_of(node).push(node)
        self._young.clear()

    def victims(
        self, size_bytes: int, account: bytes, protected: Collection[K] = ()
    ) -> list[K] | None:
        if size_bytes > self._ledger.used_bytes():
            return None
        self._queue_young()
        plan = _Plan(self, account, protected)
        try:
            while size_bytes > 0:
                node = plan.choose()
                if node is None:
                    return None
                plan.take(node)
                size_bytes -= node.size_bytes
        finally:
            plan.close()
        self._offered = set(plan.taken)
        return list(plan.taken)

    def used_bytes(self, account: bytes | None = None) -> int:
        return self._ledger.used_bytes(account)

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, key: object) -> bool:
        return key in self._nodes


class _Plan(Generic[K]):
    """One search for victims: what would be gone, and what must be put back in its heap."""

    def __init__(self, policy: ScopedPolicy[K], account: bytes, protected: Collection[K]) -> None:
        self._policy, self._account, self._protected = policy, account, protected
        self._draft = Draft(policy._ledger)
        self._guarantee = policy.shares.guarantee_bytes(policy._ledger.accounts_for(account))
        self._rivals: dict[bytes, Node[K]] = {}  # furthest above, with the next each would give
        self._gone: dict[K, int] = {}  # children that would be gone
        self._popped: list[Node[K]] = []
        self._heads: dict[Lane[K], tuple[Rank, Node[K]] | None] = {}  # as far as looked at
        self.taken: dict[K, None] = {}

    def choose(self) -> Node[K] | None:
        """The next block to go, or None. Take what it gives before asking again."""
        own, draft, rivals = self._first(self._account), self._draft, self._rivals
        while len(rivals) < RIVALS_MAX and (name := draft.largest()) is not None:
            if draft.used_bytes(name) <= self._guarantee:
                draft.offer(name)
                break
            if node := self._first(name):
                rivals[name] = node
        if not rivals:
            return own
        oldest = min(rivals.values(), key=_used_at)
        above = draft.used_bytes(self._account) > self._guarantee
        if own is not None and above and own.uses == 1 and oldest.uses > 1:
            return own
        return oldest

    def _first(self, name: bytes) -> Node[K] | None:
        """The account's first block to go that it may lose to the asking one."""
        slack = self._draft.used_bytes(name)
        if name != self._account:
            slack -= self._guarantee
        best: tuple[Rank, Node[K]] | None = None
        heads = self._heads
        for (size, _), lane in self._policy._lanes.get(name, {}).items():
            if size > slack:
                continue
            if lane not in heads:
                node = self._settle(lane)
                heads[lane] = None if node is None else (self._policy._order.value(node), node)
            head = heads[lane]
            if head is not None and (best is None or head[0] < best[0]):
                best = head
        return None if best is None else best[1]

    def _settle(self, lane: Lane[K]) -> Node[K] | None:
        """The head of a lane that may go; it stays in its place."""
        children = self._policy._children
        while (node := lane.head()) is not None:
            if node.pins or children.get(node.key, 0) > self._gone.get(node.key, 0):
                lane.pop()
            elif node.key in self._protected:
                self._popped.append(lane.pop())
            else:
                return node
        return None

    def take(self, node: Node[K]) -> None:
        """Count the block as gone; its parent may be next."""
        # It is the head of its lane: `choose` has just looked at it.
        lane = self._policy._lane_of(node)
        del self._heads[lane]
        self._popped.append(lane.pop())
        self.taken[node.key] = None
        self._draft.take(node.account, node.size_bytes)
        self._reconsider(node.account)
        if node.parent is None:
            return
        self._gone[node.parent] = self._gone.get(node.parent, 0) + 1
        parent = self._policy._nodes.get(node.parent)
        if parent is None or parent.pins or parent.key in self._protected:
            return
        if self._gone[node.parent] == self._policy._children[node.parent]:
            lane = self._policy._lane_of(parent)
            self._heads.pop(lane, None)
            if not parent.stamp:
                lane.push(parent)
            if parent.account != node.account:  # it may have had nothing to give before
                for name in (parent.account, *self._rivals):
                    self._reconsider(name)

    def _reconsider(self, account: bytes) -> None:
        self._rivals.pop(account, None)
        self._draft.offer(account)

    def close(self) -> None:
        """Have what was taken out of heaps put back at the next search, if it is still there."""
        self._draft.close()
        young = self._policy._young
        for node in self._popped:
            node.young = True
            young[node.key] = node


def _used_at(node: Node[K]) -> int:
    return node.used_at
