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

Kind = tuple[int, ...]  # from the general to the particular: (uses, turn, place)

USES_MAX, TURNS_MAX, PLACES_MAX = 5, 3, 3
BUCKETS = 21  # of the age, by half octaves from 1/128 of the capacity to 8 times the capacity
GHOSTS_MAX = 65_536  # names of what has left; about 20 MB
_FIRST_FRACTION = 1 / 128
_STEPS = 256  # a capacity; uses of one kind within a step are counted together
_REFRESHES = 16  # a capacity: new tables,
_REFRESH_USES = 64  # but not after fewer uses: a small cache would do nothing else
_BORROWED_BLOCKS = 1000.0  # weight of the kind above, in blocks


class _Batch:
    """Uses of one kind at about one time. `waiting`: those without another use so far."""

    __slots__ = ("at", "kind", "over", "waiting")

    def __init__(self, at: int, kind: Kind) -> None:
        self.at, self.kind, self.waiting, self.over = at, kind, 0, False


class Use:
    """The last use of a block. `place`: how far the block is into what its turn added."""

    __slots__ = ("at", "batch", "kind", "place", "turn", "uses")

    def __init__(self, at: int, uses: int, turn: int, place: int, kind: Kind) -> None:
        self.at, self.uses, self.turn, self.place, self.kind = at, uses, turn, place, kind
        self.batch: _Batch | None = None


class ReuseModel(Generic[K]):
    """Learns online, of one account. Memory: bounded by GHOSTS_MAX, and by steps and kinds within
    the horizon.

    Cost: amortised O(1) a use, O(kinds * BUCKETS^2) a refresh.
    """

    def __init__(self, capacity_bytes: int) -> None:
        self.volume = 0
        self._capacity = capacity_bytes
        scale = capacity_bytes * _FIRST_FRACTION
        self._edges = [0.0, *(scale * 2 ** (step / 2) for step in range(BUCKETS))]
        self._log: deque[_Batch] = deque()
        self._open: dict[Kind, _Batch] = {}
        self._dropped = 0
        self._passed = [0] * BUCKETS
        self._ghosts: OrderedDict[K, Use] = OrderedDict()
        self._again: dict[Kind, list[float]] = {}
        self._stayed: dict[Kind, list[float]] = {}
        self._tables: dict[Kind, list[float]] = {}
        self._age_at = self._refresh_at = 0.0
        self._uses = 0  # since the last refresh

    def first(self, key: K, size_bytes: int, parent: Use | None) -> Use:
        """A block comes in: maybe one that left not long ago."""
        self.volume += size_bytes
        ghost = self._ghosts.pop(key, None)
        if ghost is not None:
            return self.again(ghost)
        if parent is None:
            return self._note(self._use(1, 0, 0, 0))
        if parent.uses > 1:
            return self._note(self._use(1, parent.turn + 1, 0, 0))
        return self._note(self._use(1, parent.turn, parent.place + 1, 0))

    def again(self, last: Use) -> Use:
        """A block is used once more."""
        batch = last.batch
        if batch is not None and not batch.over:
            _row(self._again, last.kind)[self._bucket(self.volume - last.at)] += 1.0
            batch.waiting -= 1
        gap = self.volume - last.at
        return self._note(self._use(last.uses + 1, last.turn, last.place, gap))

    def left(self, key: K, last: Use) -> None:
        """A block was evicted: remember it for a while."""
        self._ghosts[key] = last
        if len(self._ghosts) > GHOSTS_MAX:
            self._ghosts.popitem(last=False)

    def index(self, last: Use) -> float:
        """Expected uses per byte of volume that the block stays from now on."""
        table = self._tables.get(last.kind)
        return table[self._bucket(self.volume - last.at)] if table else 0.0

    def _use(self, uses: int, turn: int, place: int, gap: int) -> Use:
        return Use(self.volume, uses, turn, place, self._kind(uses, turn, place, gap))

    def _kind(self, uses: int, turn: int, place: int, gap: int) -> Kind:
        """`gap`: volume since the use before. It was tried and does not tell enough to be kept."""
        del gap
        depth = min((place + 1).bit_length() // 2, PLACES_MAX) if uses == 1 else 0
        return min(uses, USES_MAX), min(turn, TURNS_MAX), depth

    def _bucket(self, age: float) -> int:
        if age < self._edges[1]:
            return 0
        return min(BUCKETS - 1, 1 + int(2 * math.log2(age / self._edges[1])))

    def _note(self, use: Use) -> Use:
        if self.volume >= self._age_at:
            self._age_at = self.volume + self._capacity / _STEPS
            self._age()
        self._uses += 1
        if self.volume >= self._refresh_at and self._uses >= _REFRESH_USES:
            self._uses = 0
            self._refresh_at = self.volume + self._capacity / _REFRESHES
            self._refresh({*self._tables, use.kind})
        elif use.kind not in self._tables:
            self._refresh({use.kind})
        batch = self._open.get(use.kind)
        if batch is None:
            batch = self._open[use.kind] = _Batch(use.at, use.kind)
            self._log.append(batch)
        batch.waiting += 1
        use.batch = batch
        return use

    def _age(self) -> None:
        """Count for each bucket the uses that have outlived it without another."""
        log, dropped, volume = self._log, self._dropped, self.volume
        self._open.clear()
        for bucket in range(BUCKETS):
            place, born_by = (
                max(self._passed[bucket] - dropped, 0),
                volume - self._edges[bucket + 1],
            )
            while place < len(log) and log[place].at < born_by:
                batch = log[place]
                _row(self._stayed, batch.kind)[bucket] += batch.waiting
                place += 1
            self._passed[bucket] = place + dropped
        while log and log[0].at < volume - self._edges[-1]:
            log.popleft().over = True
            self._dropped += 1
        while self._ghosts and _is_over(next(iter(self._ghosts.values()))):
            self._ghosts.popitem(last=False)

    def _refresh(self, kinds: set[Kind]) -> None:
        again, stayed = _with_sums(self._again), _with_sums(self._stayed)
        hazards: dict[Kind, list[float]] = {}

        def hazard(kind: Kind) -> list[float]:
            """Chance, by bucket, that a block which came so far is used within it."""
            if kind not in hazards:
                above = hazard(kind[:-1]) if kind else [0.0] * BUCKETS
                weight = _BORROWED_BLOCKS if kind else 1.0
                none = [0.0] * BUCKETS
                counts = zip(again.get(kind, none), stayed.get(kind, none), above, strict=True)
                hazards[kind] = [
                    (used + weight * more) / (used + stay + weight) for used, stay, more in counts
                ]
            return hazards[kind]

        for kind in kinds:
            self._tables[kind] = self._table(hazard(kind))

    def _table(self, hazard: list[float]) -> list[float]:
        """The index by bucket of the age."""
        uses: list[float] = []
        stays: list[float] = []
        left = 1.0
        for bucket, chance in enumerate(hazard):
            use = left * chance
            uses.append(use)
            stays.append((self._edges[bucket + 1] - self._edges[bucket]) * (left - use / 2))
            left -= use
        table = [0.0] * BUCKETS
        for start in range(BUCKETS):
            use = stay = best = 0.0
            for bucket in range(start, BUCKETS):
                use += uses[bucket]
                stay += stays[bucket]
                if use > best * stay:
                    best = use / stay
            table[start] = best
        return table


def _row(counts: dict[Kind, list[float]], kind: Kind) -> list[float]:
    row = counts.get(kind)
    if row is None:
        row = counts[kind] = [0.0] * BUCKETS
    return row


def _with_sums(counts: dict[Kind, list[float]]) -> dict[Kind, list[float]]:
    """The counts, and their sums for every more general kind."""
    sums = dict(counts)
    for kind, row in counts.items():
        for depth in range(len(kind)):
            above = sums.get(kind[:depth]) or [0.0] * BUCKETS
            sums[kind[:depth]] = [mine + more for mine, more in zip(above, row, strict=True)]
    return sums


def _is_over(last: Use) -> bool:
    return last.batch is None or last.batch.over
