"""What leaves a full tier (L11): pure policies, the same for every tier and for the planner.

ScopedPolicy orders an account's blocks as Greedy-Dual-Size-Frequency does (Cherkasova, 1998):

    priority = clock at last use + uses * cost / size      clock = priority of the last one evicted

and takes leaves only: a block goes after every cached block that continues it, so a chain goes
from its tail and no block is left behind that nothing can reach. Between accounts:

    at or below its guarantee      loses nothing to another account
    idle, above its guarantee      gives first
    furthest above its guarantee   gives next; the asking account may be the one
    but: an account above its guarantee evicts a block of its own that was never used again before
    another's block that was, so that a flood of unique prompts displaces itself
"""

from __future__ import annotations

import heapq
from collections.abc import Collection
from typing import Generic

from scopekv.core.lru import Entry, EvictionPolicy, K, LruPolicy
from scopekv.core.shares import Draft, Ledger, Shares
from scopekv.errors import Misuse

__all__ = ["Entry", "EvictionPolicy", "LruPolicy", "ScopedPolicy", "Shares"]

USES_MAX = 4  # what was loved long ago must be able to leave
_SPARE = 64


class _Node(Generic[K]):
    """A cached block and where it stands."""

    __slots__ = (
        *("account", "alive", "depth", "key", "parent", "pins"),
        *("priority", "queued", "rate", "serial", "size_bytes", "uses"),
    )

    def __init__(self, key: K, entry: Entry[K], clock: float, serial: int) -> None:
        self.key, self.account, self.parent = key, entry.account, entry.parent
        self.depth, self.size_bytes, self.serial = entry.depth, entry.size_bytes, serial
        self.rate = entry.cost / entry.size_bytes
        self.uses, self.pins, self.alive, self.queued = 1, 0, True, False
        self.priority = clock + self.rate

    def rank(self) -> _Rank:
        """First to go first: equals go from the tail, then the older first."""
        return self.priority, -self.depth, self.serial


_Rank = tuple[float, int, int]
_Queue = list[tuple[_Rank, _Node[K]]]


class _Lane(Generic[K]):
    """An account's leaves of one size, in a heap that is put right when it is looked at.

    Priorities only rise, so an entry that is out of date stands too early, never too late.
    """

    __slots__ = ("blocks", "heap")

    def __init__(self) -> None:
        self.heap: _Queue[K] = []
        self.blocks = 0

    def push(self, node: _Node[K]) -> None:
        node.queued = True
        heapq.heappush(self.heap, (node.rank(), node))

    def tidy(self) -> None:
        """Drop the entries of removed blocks once they are the greater part. Amortised O(1)."""
        if len(self.heap) > 2 * self.blocks + _SPARE:
            self.heap = [pair for pair in self.heap if pair[1].alive]
            heapq.heapify(self.heap)


class ScopedPolicy(Generic[K]):
    """Recompute cost, recency, frequency, leaves first, guaranteed shares.

    Cost: O(log n) a step and a victim, amortised, times the number of different block sizes.
    With blocks of different sizes the choice is greedy: a set that would just do can be missed
    when more than one block is asked for; a single block that may go never is.
    """

    def __init__(self, shares: Shares) -> None:
        self.shares = shares
        self._nodes: dict[K, _Node[K]] = {}
        self._children: dict[K, int] = {}  # cached children, also of keys that are not cached
        self._lanes: dict[bytes, dict[int, _Lane[K]]] = {}
        self._clocks: dict[bytes, float] = {}
        self._young: dict[K, _Node[K]] = {}  # leaves since the last search: most become inner
        self._ledger = Ledger(shares.capacity_bytes)
        self._offered: set[K] = set()  # the last victims: their removal is an eviction
        self._serial = 0

    def insert(self, key: K, entry: Entry[K]) -> None:
        if key in self._nodes or key == entry.parent:
            raise Misuse("the block is cached already, or its own parent; touch it instead")
        self._serial += 1
        node = _Node(key, entry, self._clocks.get(entry.account, 0.0), self._serial)
        self._nodes[key] = node
        lanes = self._lanes.get(entry.account)
        if lanes is None:
            lanes = self._lanes[entry.account] = {}
        lane = lanes.get(entry.size_bytes)
        if lane is None:
            lane = lanes[entry.size_bytes] = _Lane()
        lane.blocks += 1
        self._ledger.add(entry.account, entry.size_bytes)
        if entry.parent is not None:
            self._children[entry.parent] = self._children.get(entry.parent, 0) + 1
            if parent := self._young.pop(entry.parent, None):
                parent.queued = False
        self._enqueue(node)

    def touch(self, key: K) -> None:
        node = self._nodes.get(key)
        if node is not None:
            node.uses = min(node.uses + 1, USES_MAX)
            node.priority = self._clocks.get(node.account, 0.0) + node.uses * node.rate
            self._ledger.use(node.account)

    def remove(self, key: K) -> None:
        node = self._nodes.pop(key, None)
        if node is None:
            return
        node.alive = False
        self._young.pop(key, None)
        if key in self._offered:
            self._offered.discard(key)
            self._clocks[node.account] = max(self._clocks.get(node.account, 0.0), node.priority)
        self._ledger.take(node.account, node.size_bytes)
        lanes = self._lanes[node.account]
        lane = lanes[node.size_bytes]
        lane.blocks -= 1
        lane.tidy()
        if not lane.blocks:
            del lanes[node.size_bytes]
        if not lanes:  # an account that comes back starts anew, beside others who do
            del self._lanes[node.account]
            self._clocks.pop(node.account, None)
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

    def _enqueue(self, node: _Node[K]) -> None:
        if not (node.queued or node.pins or self._children.get(node.key)):
            node.queued = True
            self._young[node.key] = node

    def _queue_young(self) -> None:
        for node in self._young.values():
            self._lanes[node.account][node.size_bytes].push(node)
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

    def worth(self, key: K) -> float:
        node = self._nodes.get(key)
        return node.uses * node.rate if node else 0.0

    def guaranteed(self, account: bytes, size_bytes: int) -> bool:
        guarantee = self.shares.guarantee_bytes(self._ledger.accounts_for(account))
        return self._ledger.used_bytes(account) + size_bytes <= guarantee

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
        self._idle = [name for name in policy._ledger.idle(self._guarantee) if name != account]
        self._gone: dict[K, int] = {}  # children that would be gone
        self._popped: list[_Node[K]] = []
        self._own: _Node[K] | None = None
        self._own_known = False  # until a block of the asking account is taken
        self.taken: dict[K, None] = {}

    def choose(self) -> _Node[K] | None:
        """The next block to go, or None. Take what it gives before asking again."""
        for idle in self._idle:
            if node := self._first(idle):
                return node
        if not self._own_known:
            self._own, self._own_known = self._first(self._account), True
        own = self._own
        above = self._draft.used_bytes(self._account) > self._guarantee
        while (name := self._draft.largest()) is not None:
            node = own if name == self._account else self._first(name)
            if node is not None:
                if own is not None and above and own.uses == 1 and node.uses > 1:
                    self._draft.offer(name)
                    return own
                return node  # `take` offers its account again
            if self._draft.used_bytes(name) <= self._guarantee:
                self._draft.offer(name)
                break
        return own

    def _first(self, name: bytes) -> _Node[K] | None:
        """The account's first block to go that it may lose to the asking one."""
        slack = self._draft.used_bytes(name)
        if name != self._account:
            slack -= self._guarantee
        found: _Node[K] | None = None
        for size, lane in self._policy._lanes.get(name, {}).items():
            node = self._settle(lane.heap) if size <= slack else None
            if node is not None and (found is None or node.rank() < found.rank()):
                found = node
        return found

    def _settle(self, heap: _Queue[K]) -> _Node[K] | None:
        """Put the head of a heap right; return it, without taking it."""
        children = self._policy._children
        while heap:
            rank, node = heap[0]
            key = node.key
            if not node.alive or node.pins or children.get(key, 0) > self._gone.get(key, 0):
                heapq.heappop(heap)
                node.queued = False
            elif key in self._protected:
                heapq.heappop(heap)
                self._popped.append(node)
            elif rank != node.rank():
                heapq.heapreplace(heap, (node.rank(), node))
            else:
                return node
        return None

    def take(self, node: _Node[K]) -> None:
        """Count the block as gone; its parent may be next."""
        lane = self._policy._lanes[node.account][node.size_bytes]
        heapq.heappop(lane.heap)  # it is the head: `choose` has just looked at it
        self._popped.append(node)
        self.taken[node.key] = None
        self._draft.take(node.account, node.size_bytes)
        self._draft.offer(node.account)
        if node.account == self._account:
            self._own_known = False
        if node.parent is None:
            return
        self._gone[node.parent] = self._gone.get(node.parent, 0) + 1
        parent = self._policy._nodes.get(node.parent)
        if parent is None or parent.pins or parent.key in self._protected:
            return
        if self._gone[node.parent] == self._policy._children[node.parent]:
            if not parent.queued:
                self._policy._lanes[parent.account][parent.size_bytes].push(parent)
            self._draft.offer(parent.account)  # it may have had nothing to give before
            self._own_known = self._own_known and parent.account != self._account

    def close(self) -> None:
        """Have what was taken out of heaps put back at the next search, if it is still there."""
        self._draft.close()
        young = self._policy._young
        for node in self._popped:
            young[node.key] = node
