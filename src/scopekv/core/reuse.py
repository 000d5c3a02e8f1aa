"""When a block is used again, learned from what is cached and what has just left.

Time is the volume of bytes that came in. Uses of one kind (how often the block was used, and
which turn of its conversation made it) share a histogram of the volume until the next use, also
where that comes after the block has left. From it follows what a byte is worth at an age a:

    index(a) = max over T of  P(used again in a..T) / expected stay in a..T      (Gittins, 1979)

A kind with few uses borrows from the kinds above it, so nothing needs to be trained before.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

Kind = tuple[int, ...]  # from the general to the particular: (uses, turn)

USES_MAX, TURNS_MAX = 5, 3
HORIZON_CAPACITIES = 8  # a use that comes later than that is no use to know of
BUCKETS = 27  # of the age, by half octaves from 1/1024 of the capacity on
GHOSTS_MAX = 131_072
_FIRST = 1 / 1024
_BORROWED_BLOCKS = 300.0  # weight of the kind above, in blocks
_STEPS = 1024  # of ageing, a capacity
_REFRESHES = 64  # new tables, a capacity


class Use:
    """A use of a block that has not been followed by another yet."""

    __slots__ = ("at", "kind", "over", "turn", "uses")

    def __init__(self, at: int, uses: int, turn: int) -> None:
        self.at, self.uses, self.turn, self.over = at, uses, turn, False
        self.kind = (min(uses, USES_MAX), min(turn, TURNS_MAX))


class ReuseModel(Generic[K]):
    """Learns online. Memory: bounded by GHOSTS_MAX and what came in within the horizon.

    Cost: amortised O(BUCKETS) a use.
    """

    def __init__(self, capacity_bytes: int) -> None:
        self.volume = 0
        self._capacity = capacity_bytes
        scale = capacity_bytes * _FIRST
        self._edges = [0.0, *(scale * 2 ** (step / 2) for step in range(BUCKETS))]
        self._log: deque[Use] = deque()
        self._dropped = 0
        self._passed = [0] * BUCKETS
        self._ghosts: OrderedDict[K, Use] = OrderedDict()
        self._again: dict[Kind, list[float]] = {}
        self._stayed: dict[Kind, list[float]] = {}
        self._tables: dict[Kind, list[float]] = {}
        self._age_at = self._refresh_at = 0.0

    def first(self, key: K, size_bytes: int, parent: Use | None) -> Use:
        """A block comes in: maybe one that left not long ago."""
        self.volume += size_bytes
        ghost = self._ghosts.pop(key, None)
        if ghost is not None:
            return self.again(ghost)
        turn = 0 if parent is None else parent.turn + (parent.uses > 1)
        return self._note(Use(self.volume, 1, turn))

    def again(self, last: Use) -> Use:
        """A block is used once more."""
        if not last.over:
            self._count(self._again, last.kind, self._bucket(self.volume - last.at))
            last.over = True
        return self._note(Use(self.volume, last.uses + 1, last.turn))

    def left(self, key: K, last: Use) -> None:
        """A block was evicted: remember it for a while."""
        self._ghosts[key] = last
        if len(self._ghosts) > GHOSTS_MAX:
            self._ghosts.popitem(last=False)

    def index(self, last: Use) -> float:
        """Expected uses per byte of volume that the block stays from now on."""
        table = self._tables.get(last.kind)
        return table[self._bucket(self.volume - last.at)] if table else 0.0

    def _bucket(self, age: float) -> int:
        if age < self._edges[1]:
            return 0
        return min(BUCKETS - 1, 1 + int(2 * math.log2(age / self._edges[1])))

    def _note(self, use: Use) -> Use:
        self._log.append(use)
        if self.volume >= self._age_at:
            self._age_at = self.volume + self._capacity / _STEPS
            self._age()
        if use.kind not in self._tables or self.volume >= self._refresh_at:
            self._refresh(use.kind)
        return use

    def _age(self) -> None:
        """Count for each bucket the uses that have outlived it without another."""
        log, dropped, volume = self._log, self._dropped, self.volume
        for bucket in range(BUCKETS):
            edge = self._edges[bucket + 1]
            place = max(self._passed[bucket], dropped)
            while place - dropped < len(log):
                use = log[place - dropped]
                if volume - use.at <= edge:
                    break
                if not use.over:
                    self._count(self._stayed, use.kind, bucket)
                place += 1
            self._passed[bucket] = place
        horizon = volume - HORIZON_CAPACITIES * self._capacity
        while log[0].at < horizon:
            log.popleft().over = True
            self._dropped += 1
        while self._ghosts and next(iter(self._ghosts.values())).over:
            self._ghosts.popitem(last=False)

    def _count(self, counts: dict[Kind, list[float]], kind: Kind, bucket: int) -> None:
        for depth in range(len(kind) + 1):
            row = counts.get(kind[:depth])
            if row is None:
                row = counts[kind[:depth]] = [0.0] * BUCKETS
            row[bucket] += 1.0

    def _refresh(self, kind: Kind) -> None:
        self._refresh_at = self.volume + self._capacity / _REFRESHES
        hazards: dict[Kind, list[float]] = {}
        for each in {*self._tables, kind}:
            self._tables[each] = self._table(self._hazard(each, hazards))

    def _hazard(self, kind: Kind, known: dict[Kind, list[float]]) -> list[float]:
        """Chance, by bucket, that a block which came so far is used within it."""
        found = known.get(kind)
        if found is None:
            none = [0.0] * BUCKETS
            again, stayed = self._again.get(kind, none), self._stayed.get(kind, none)
            if kind:
                above, weight = self._hazard(kind[:-1], known), _BORROWED_BLOCKS
            else:
                above, weight = none, 1.0
            found = known[kind] = [
                (used + weight * more) / (used + stay + weight)
                for used, stay, more in zip(again, stayed, above, strict=True)
            ]
        return found

    def _table(self, hazard: list[float]) -> list[float]:
        uses: list[float] = []
        stays: list[float] = []
        left = 1.0
        for bucket, chance in enumerate(hazard):
            use = left * chance
            width = self._edges[bucket + 1] - self._edges[bucket]
            uses.append(use)
            stays.append(width * (left - use / 2))
            left -= use
        table = [0.0] * BUCKETS
        for start in range(BUCKETS):
            use = stay = best = 0.0
            for bucket in range(start, BUCKETS):
                use += uses[bucket]
                stay += stays[bucket]
                if stay > 0.0:
                    best = max(best, use / stay)
            table[start] = best
        return table
