"""The order in which an account's blocks leave: heaps of leaves, and what ranks them."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import Any, Generic, Protocol

from scopekv.core.lru import Entry, K
from scopekv.core.reuse import ReuseModel, Use

YOUNG = -1
USES_MAX = 4  # what was loved long ago must be able to leave
_SPARE = 64

Rank = Any  # what compares, of one order always alike: a number, or a tuple of numbers
Kind = tuple[int, ...]
LaneName = tuple[int, Kind]  # among an account's: size, kind


class Node(Generic[K]):
    """A cached block and where it stands.

    `stamp`: of its entry in a heap; 0: it is in none; YOUNG: it waits to come into one.
    `children`: how many cached blocks continue it.
    """

    __slots__ = (
        *("account", "children", "depth", "key", "kind", "lane", "last", "parent", "pins"),
        *("priority", "rank", "rate", "serial", "size_bytes", "stamp", "used_at", "uses"),
    )
    lane: Lane[K]  # that counts it, from its insertion on
    rank: Rank  # set by its order at each use
    priority: float  # from here on what an order notes
    last: Use
    rate: float  # seconds of prefill a byte
    depth: int

    def __init__(self, key: K, entry: Entry[K], serial: int) -> None:
        self.key, self.account, self.parent = key, entry.account, entry.parent
        self.size_bytes = entry.size_bytes
        self.serial = self.used_at = serial  # of its first and its last use, over all blocks
        self.uses = 1
        self.pins = self.children = self.stamp = 0
        self.kind: Kind = ()

    def note_cost(self, entry: Entry[K]) -> None:
        """For orders that look at it."""
        self.rate, self.depth = entry.cost / entry.size_bytes, entry.depth


class Order(Protocol[K]):
    """Ranks blocks. Blocks of one account, size and kind are ordered by their `rank`, which changes
    with a use alone and never falls while the kind stays; the first of each kind compete by
    `value`: the least goes.
    """

    def insert(self, node: Node[K], entry: Entry[K], parent: Node[K] | None) -> None:
        """A block comes in below a parent, if that is cached: set its rank."""

    def touch(self, node: Node[K]) -> None:
        """A block is used: set its rank; its kind may change."""

    def evicted(self, nodes: Iterable[Node[K]]) -> None:
        """Blocks go because they were victims, in this order."""

    def emptied(self, account: bytes) -> None:
        """An account holds nothing any more."""

    def value(self, node: Node[K]) -> Rank: ...


class GreedyDual(Generic[K]):
    """Greedy-Dual-Size-Frequency (Cherkasova, 1998):

    priority = clock at last use + uses * cost / size      clock = priority of the last one evicted
    """

    def __init__(self) -> None:
        self._clocks: dict[bytes, float] = {}

    def insert(self, node: Node[K], entry: Entry[K], parent: Node[K] | None) -> None:
        del parent
        node.note_cost(entry)
        self.touch(node)

    def touch(self, node: Node[K]) -> None:
        """Equals go from the tail, then the older first."""
        node.priority = self._clocks.get(node.account, 0.0) + node.uses * node.rate
        node.rank = node.priority, -node.depth, node.serial

    def evicted(self, nodes: Iterable[Node[K]]) -> None:
        for node in nodes:
            self._clocks[node.account] = max(self._clocks.get(node.account, 0.0), node.priority)

    def emptied(self, account: bytes) -> None:
        """An account that comes back starts anew, beside others who do."""
        self._clocks.pop(account, None)

    def value(self, node: Node[K]) -> Rank:
        return node.rank


class Recency(Generic[K]):
    """What was used longest ago goes first."""

    def insert(self, node: Node[K], entry: Entry[K], parent: Node[K] | None) -> None:
        del entry, parent
        node.rank = node.used_at

    def touch(self, node: Node[K]) -> None:
        node.rank = node.used_at

    def evicted(self, nodes: Iterable[Node[K]]) -> None:
        """Nothing to learn."""

    def emptied(self, account: bytes) -> None:
        """Nothing to forget."""

    def value(self, node: Node[K]) -> Rank:
        return node.rank


class LearnedReuse(Generic[K]):
    """By expected seconds of prefill saved per byte and time, see core/reuse.py.

    Each account has a model and a time of its own: nothing that another does changes in which order
    its blocks leave (L10). Its first blocks leave as under LRU.
    """

    def __init__(
        self, capacity_bytes: int, make: Callable[[int], ReuseModel[K]] = ReuseModel
    ) -> None:
        self._capacity, self._make = capacity_bytes, make
        self._models: dict[bytes, ReuseModel[K]] = {}

    def insert(self, node: Node[K], entry: Entry[K], parent: Node[K] | None) -> None:
        node.note_cost(entry)
        model = self._models.get(node.account)
        if model is None:
            model = self._models[node.account] = self._make(self._capacity)
        mine = parent is not None and parent.account == node.account
        last = parent.last if parent is not None and mine else None
        self._used(node, model.first(node.key, node.size_bytes, last))

    def touch(self, node: Node[K]) -> None:
        self._used(node, self._models[node.account].again(node.last))

    @staticmethod
    def _used(node: Node[K], use: Use) -> None:
        node.last, node.kind = use, use.kind
        node.rank = use.at, -node.depth, node.serial

    def evicted(self, nodes: Iterable[Node[K]]) -> None:
        for node in nodes:
            self._models[node.account].left(node.key, node.last)

    def emptied(self, account: bytes) -> None:
        """An account that comes back learns anew."""
        self._models.pop(account, None)

    def value(self, node: Node[K]) -> Rank:
        worth = self._models[node.account].index(node.last) * node.rate
        return (worth, *node.rank)


class Lane(Generic[K]):
    """An account's leaves of one size and kind, in a heap that is put right when looked at.

    `blocks`: of that size and kind, leaves or not.
    Ranks only rise, so an entry that is out of date stands too early, never too late. An entry
    counts while its stamp is its node's.
    """

    __slots__ = ("_stamps", "account", "blocks", "heap", "kind", "size_bytes")

    def __init__(self, stamps: Any, account: bytes, size_bytes: int, kind: Kind) -> None:
        self._stamps, self.account, self.size_bytes, self.kind = stamps, account, size_bytes, kind
        self.heap: list[tuple[Rank, int, Node[K]]] = []
        self.blocks = 0

    def push(self, node: Node[K]) -> None:
        node.stamp = next(self._stamps)
        heapq.heappush(self.heap, (node.rank, node.stamp, node))

    def pop(self) -> Node[K]:
        node = heapq.heappop(self.heap)[2]
        node.stamp = 0
        return node

    def head(self) -> Node[K] | None:
        """The first leaf by its present rank; it stays."""
        heap = self.heap
        while heap:
            rank, stamp, node = heap[0]
            if stamp != node.stamp:
                heapq.heappop(heap)
            elif rank != node.rank:
                heapq.heapreplace(heap, (node.rank, stamp, node))
            else:
                return node
        return None

    def tidy(self) -> None:
        """Drop entries that count no more once they are the greater part. Amortised O(1)."""
        if len(self.heap) > 2 * self.blocks + _SPARE:
            self.heap = [entry for entry in self.heap if entry[1] == entry[2].stamp]
            heapq.heapify(self.heap)
