"""Cached blocks, kept as runs; and of each account, heaps of the runs that may lose a block."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from itertools import count
from typing import Any, Generic

from scopekv.core.lru import Entry, K
from scopekv.core.reuse import Use

YOUNG = -1
USES_MAX = 4  # what was loved long ago must be able to leave
_SPARE = 64

Rank = Any  # what compares, of one order always alike: a number, or a tuple of numbers
Kind = tuple[int, ...]
LaneName = tuple[int, Kind]  # among an account's: size, kind


class Run(Generic[K]):
    """Cached blocks, each the parent of the next, of one account, size, kind and number of uses.

    They were used one after the other: between two of them no other block was. So they go one after
    the other too, the last one first, and whatever ranks before or after one of them does so to
    all. Only the last may be pinned, or have children in other runs: `pins`, `children`.

    `parent`: of the first. `stamp`: of its entry in a heap; 0: it is in none; YOUNG: it waits to
    come into one. `used_at`: when the last was used, counted in uses of all blocks; blocks that go
    from the end leave it as it is, as no other block was used since.
    """

    __slots__ = (
        *("account", "children", "depth", "keys", "kind", "lane", "last", "parent", "pins"),
        *("priority", "rank", "rate", "serial", "size_bytes", "stamp", "used_at", "uses"),
    )
    lane: Lane[K]  # that counts it, from its insertion on
    rank: Rank  # set by its order at each use
    priority: float  # from here on what an order notes of a block that is a run by itself
    last: Use
    rate: float  # seconds of prefill a byte
    depth: int

    def __init__(
        self, keys: list[K], account: bytes, parent: K | None, size_bytes: int, used_at: int
    ) -> None:
        self.keys, self.account, self.parent, self.size_bytes = keys, account, parent, size_bytes
        self.serial = self.used_at = used_at  # at its first and its last use
        self.uses = 1
        self.pins = self.children = self.stamp = 0
        self.kind: Kind = ()

    def note_cost(self, entry: Entry[K]) -> None:
        """For orders that look at it."""
        self.rate, self.depth = entry.cost / entry.size_bytes, entry.depth

    def split(self, blocks: int) -> Run[K]:
        """Let the first so many blocks go into a run of their own, which this one continues."""
        keys = self.keys
        used_at = self.used_at - len(keys) + blocks
        head = Run(keys[:blocks], self.account, self.parent, self.size_bytes, used_at)
        head.rank, head.uses, head.kind, head.lane = used_at, self.uses, self.kind, self.lane
        head.children = 1
        del keys[:blocks]
        self.parent = head.keys[-1]
        return head


class Runs(dict[K, Run[K]]):
    """The run of each cached block. Cost: O(blocks of a run) where it is split, else O(1)."""

    __slots__ = ()

    def ending(self, key: K) -> Run[K] | None:
        """The run of a block, if that is cached; split after it, unless it is the last."""
        run = self.get(key)
        if run is None or run.keys[-1] == key:
            return run
        return self._split(run, run.keys.index(key) + 1)

    def alone(self, key: K) -> Run[K] | None:
        """The run of a block, if that is cached; split to have no other."""
        run = self.ending(key)
        if run is not None and len(run.keys) > 1:
            self._split(run, len(run.keys) - 1)
        return run

    def common(self, run: Run[K], keys: list[K], at: int) -> Run[K]:
        """What a run and some keys have in common from `keys[at]` on, as a run of its own."""
        mine = run.keys
        if mine == keys[at : at + len(mine)]:
            return run
        start = end = mine.index(keys[at])
        while end < len(mine) and at < len(keys) and mine[end] == keys[at]:
            end, at = end + 1, at + 1
        if end < len(mine):
            run = self._split(run, end)
        if start:
            self._split(run, start)
        return run

    def _split(self, run: Run[K], blocks: int) -> Run[K]:
        head = run.split(blocks)
        for key in head.keys:
            self[key] = head
        return head


def ends(keys: list[K], entries: Sequence[Entry[K]]) -> list[int]:
    """Where new blocks must be divided into runs: after how many of them each ends."""
    if not keys:
        return []
    accounts, parents, _, sizes, _ = zip(*entries, strict=True)
    blocks, above = len(keys), (None, *keys[:-1])
    if parents[1:] == above[1:] and accounts.count(accounts[0]) == sizes.count(sizes[0]) == blocks:
        return [blocks]  # of most prompts
    alike = list(zip(accounts, sizes, strict=True))
    parts = [
        at for at in range(1, blocks) if parents[at] != above[at] or alike[at] != alike[at - 1]
    ]
    return [*parts, blocks]


class Lane(Generic[K]):
    """An account's leaves of one size and kind, in a heap that is put right when looked at.

    `blocks`: of that size and kind, leaves or not.
    Ranks only rise, so an entry that is out of date stands too early, never too late. An entry
    counts while its stamp is its run's.
    """

    __slots__ = ("_stamps", "account", "blocks", "heap", "kind", "size_bytes")

    def __init__(self, stamps: Any, account: bytes, size_bytes: int, kind: Kind) -> None:
        self._stamps, self.account, self.size_bytes, self.kind = stamps, account, size_bytes, kind
        self.heap: list[tuple[Rank, int, Run[K]]] = []
        self.blocks = 0

    def push(self, run: Run[K]) -> None:
        run.stamp = next(self._stamps)
        heapq.heappush(self.heap, (run.rank, run.stamp, run))

    def pop(self) -> Run[K]:
        run = heapq.heappop(self.heap)[2]
        run.stamp = 0
        return run

    def head(self) -> Run[K] | None:
        """The first leaf by its present rank; it stays."""
        heap = self.heap
        while heap:
            rank, stamp, run = heap[0]
            if stamp != run.stamp:
                heapq.heappop(heap)
            elif rank != run.rank:
                heapq.heapreplace(heap, (run.rank, stamp, run))
            else:
                return run
        return None

    def tidy(self) -> None:
        """Drop entries that count no more once they are the greater part. Amortised O(1)."""
        if len(self.heap) > 2 * self.blocks + _SPARE:
            self.heap = [entry for entry in self.heap if entry[1] == entry[2].stamp]
            heapq.heapify(self.heap)


class Lanes(dict[bytes, dict[LaneName, Lane[K]]]):
    """The lanes of each account.

    `smallest`: no block ever had fewer bytes. `unit`: all had a multiple of it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._stamps = count(1)
        self.smallest, self.unit = 1 << 62, 0

    def of(self, run: Run[K]) -> Lane[K]:
        """The lane of a run's account, size and kind."""
        lanes = self.setdefault(run.account, {})
        name = run.size_bytes, run.kind
        lane = lanes.get(name)
        if lane is None:
            lane = lanes[name] = Lane(self._stamps, run.account, *name)
            self.smallest = min(self.smallest, run.size_bytes)
            self.unit = math.gcd(self.unit, run.size_bytes)
        return lane

    def drop(self, lane: Lane[K]) -> bool:
        """Forget a lane without blocks; whether its account has none at all any more."""
        lanes = self[lane.account]
        del lanes[lane.size_bytes, lane.kind]
        if not lanes:
            del self[lane.account]
        return not lanes
