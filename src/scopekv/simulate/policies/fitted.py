"""What the signals that ours goes by could give at most: fitted to the trace that is replayed."""

from __future__ import annotations

from collections.abc import Sequence

from scopekv.core.eviction import LearnedReuse, ScopedPolicy, Shares
from scopekv.core.reuse import Kind, ReuseModel, Use
from scopekv.simulate.traces import TracedRequest

_GAPS_MAX = 4
_ACCOUNT = b"trace"


class _Fitted(ReuseModel[int]):
    """Counts over finer kinds, and the gap before the last use; frozen once it is told to be.

    Optimistic: it knows how each kind is used over the whole trace, the part to come too. It does
    not know the fate of a single block.
    """

    _frozen = False

    def _kind(self, uses: int, turn: int, place: int, gap: int) -> Kind:
        sixteenths = gap * 16 // self._capacity
        between = min((sixteenths.bit_length() + 1) // 2, _GAPS_MAX)
        depth = min((place + 1).bit_length() // 2, 3)
        return min(uses, 8), min(turn, 4), depth, between

    def freeze(self) -> None:
        """From now on nothing is learned, and time begins anew."""
        self._refresh({*self._again, *self._stayed})
        self._log.clear()
        self._ghosts.clear()
        self.volume, self._frozen = 0, True

    def left(self, key: int, last: Use) -> None:
        super().left(key, last)
        while self._frozen and self.volume - next(iter(self._ghosts.values())).at > self._edges[-1]:
            self._ghosts.popitem(last=False)

    def _note(self, use: Use) -> Use:
        return use if self._frozen else super()._note(use)


def fitted_policy(requests: Sequence[TracedRequest], blocks: int) -> ScopedPolicy[int]:
    """Ours with counts of the whole trace, for a cache of so many blocks.

    Reads the trace once, and holds the last use of each of its blocks.
    """
    model = _Fitted(blocks)
    known: dict[int, Use] = {}
    for request in requests:
        parent: Use | None = None
        for block in request.block_ids:
            last = known.get(block)
            if last is None or last.batch is None or last.batch.over:
                parent = known[block] = model.first(block, 1, parent)
            else:
                parent = known[block] = model.again(last)
    model.freeze()
    return ScopedPolicy(Shares(blocks), LearnedReuse(blocks, lambda _: model))
