"""What ranks an account's blocks: the order in which they leave."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, Protocol

from scopekv.core.lru import Entry, K
from scopekv.core.reuse import ReuseModel, Use
from scopekv.core.runs import Rank, Run


class Order(Protocol[K]):
    """Ranks blocks. Blocks of one account, size and kind are ordered by their `rank`, which changes
    with a use alone and never falls while the kind stays; the first of each kind compete by
    `value`: the least goes.

    `by_use`: a rank is `used_at`, and nothing more is noted of a block. Only then several are one
    run, and are told of as such.
    """

    by_use: bool

    def insert(self, run: Run[K], entry: Entry[K], parent: Run[K] | None) -> None:
        """Blocks come in below a parent, if that is cached: set its rank."""

    def touch(self, run: Run[K]) -> None:
        """A block is used: set its rank; its kind may change."""

    def evicted(self, runs: Iterable[Run[K]]) -> None:
        """Blocks go because they were victims, in this order."""

    def emptied(self, account: bytes) -> None:
        """An account holds nothing any more."""

    def value(self, run: Run[K]) -> Rank: ...


class GreedyDual(Generic[K]):
    """Greedy-Dual-Size-Frequency (Cherkasova, 1998):

    priority = clock at last use + uses * cost / size      clock = priority of the last one evicted
    """

    by_use = False

    def __init__(self) -> None:
        self._clocks: dict[bytes, float] = {}

    def insert(self, run: Run[K], entry: Entry[K], parent: Run[K] | None) -> None:
        del parent
        run.note_cost(entry)
        self.touch(run)

    def touch(self, run: Run[K]) -> None:
        """Equals go from the tail, then the older first."""
        run.priority = self._clocks.get(run.account, 0.0) + run.uses * run.rate
        run.rank = run.priority, -run.depth, run.serial

    def evicted(self, runs: Iterable[Run[K]]) -> None:
        for run in runs:
            self._clocks[run.account] = max(self._clocks.get(run.account, 0.0), run.priority)

    def emptied(self, account: bytes) -> None:
        """An account that comes back starts anew, beside others who do."""
        self._clocks.pop(account, None)

    def value(self, run: Run[K]) -> Rank:
        return run.rank


class Recency(Generic[K]):
    """What was used longest ago goes first."""

    by_use = True

    def insert(self, run: Run[K], entry: Entry[K], parent: Run[K] | None) -> None:
        del entry, parent
        run.rank = run.used_at

    def touch(self, run: Run[K]) -> None:
        run.rank = run.used_at

    def evicted(self, runs: Iterable[Run[K]]) -> None:
        """Nothing to learn."""

    def emptied(self, account: bytes) -> None:
        """Nothing to forget."""

    def value(self, run: Run[K]) -> Rank:
        return run.rank


class LearnedReuse(Generic[K]):
    """By expected seconds of prefill saved per byte and time, see core/reuse.py.

    Each account has a model and a time of its own: nothing that another does changes in which order
    its blocks leave (L10). Its first blocks leave as under LRU.
    """

    by_use = False

    def __init__(
        self, capacity_bytes: int, make: Callable[[int], ReuseModel[K]] = ReuseModel
    ) -> None:
        self._capacity, self._make = capacity_bytes, make
        self._models: dict[bytes, ReuseModel[K]] = {}

    def insert(self, run: Run[K], entry: Entry[K], parent: Run[K] | None) -> None:
        run.note_cost(entry)
        model = self._models.get(run.account)
        if model is None:
            model = self._models[run.account] = self._make(self._capacity)
        mine = parent is not None and parent.account == run.account
        last = parent.last if parent is not None and mine else None
        self._used(run, model.first(run.keys[0], run.size_bytes, last))

    def touch(self, run: Run[K]) -> None:
        self._used(run, self._models[run.account].again(run.last))

    @staticmethod
    def _used(run: Run[K], use: Use) -> None:
        run.last, run.kind = use, use.kind
        run.rank = use.at, -run.depth, run.serial

    def evicted(self, runs: Iterable[Run[K]]) -> None:
        for run in runs:
            self._models[run.account].left(run.keys[0], run.last)

    def emptied(self, account: bytes) -> None:
        """An account that comes back learns anew."""
        self._models.pop(account, None)

    def value(self, run: Run[K]) -> Rank:
        worth = self._models[run.account].index(run.last) * run.rate
        return (worth, *run.rank)
