"""Which blocks go, one after the other, between accounts: the search of `core.eviction`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import takewhile
from operator import attrgetter, itemgetter
from typing import Any, Generic

from scopekv.core.lru import K
from scopekv.core.orders import Order
from scopekv.core.runs import Lane, LaneName, Rank, Run
from scopekv.core.shares import Draft, Ledger

# So many accounts furthest above their guarantee compete by age: enough to come near to what was
# used longest ago of all that is lent, and a bound on what a victim costs.
RIVALS_MAX = 8

_NONE: Mapping[LaneName, Lane[Any]] = {}
_used_at = attrgetter("used_at")


class Search(Generic[K]):
    """One search. Changes the heaps of lanes alone: what it took from them is `taken` or `passed`.

    `victims`: keys in order, of runs that are `taken` as a whole or `cut` by so many blocks at the
    end; `lost`: how many of each lane. `passed`: runs that end with a protected block. `gone`:
    children that blocks which stay, or are cut off, would lose. Looks at an account again only when
    a take may have changed what it gives.
    """

    def __init__(
        self,
        runs: Mapping[K, Run[K]],
        lanes: Mapping[bytes, Mapping[LaneName, Lane[K]]],
        order: Order[K],
        ledger: Ledger,
        *,
        account: bytes,
        guarantee: int,
        smallest: int,
        protected: frozenset[K],
    ) -> None:
        """`smallest`: no block has fewer bytes."""
        self._runs, self._lanes, self._order = runs, lanes, order
        self._account, self._guarantee, self._protected = account, guarantee, protected
        self._smallest = smallest
        self.draft = Draft(ledger)
        self._rivals: dict[bytes, Run[K]] = {}  # furthest above, with the next each would give
        self._again: dict[bytes, None] = {}  # accounts to look at again, not among the rivals
        self._spares = False  # whether the asking account gives a block for one used again
        self._rest_below = False  # whether nobody else is above the guarantee by a block
        self._heads: dict[Lane[K], tuple[Rank, Run[K]] | None] = {}  # of accounts with several
        self.victims: list[K] = []
        self.taken: list[Run[K]] = []
        self.cut: dict[Run[K], int] = {}
        self.passed: list[Run[K]] = []
        self.gone: dict[K, int] = {}
        self.lost: dict[Lane[K], int] = {}
        self._own_bytes = self.draft.used_bytes(account)
        self._own = self._first(account, self._own_bytes)  # what the asking account gives next

    def run(self, size_bytes: int) -> bool:
        """Take blocks of so many bytes; whether there were enough."""
        while size_bytes > 0:
            run = self._choose()
            if run is None:
                return False
            size_bytes -= self._take(run, size_bytes)
        return True

    def _choose(self) -> Run[K] | None:
        """The next block to go, or None. Take what it gives before asking again."""
        if self._account in self._again:
            self._own_bytes = self.draft.used_bytes(self._account)
            self._own = self._first(self._account, self._own_bytes)
        self._find_rivals()
        own, rivals = self._own, self._rivals
        oldest = min(rivals.values(), key=_used_at) if rivals else own
        self._spares = own is not None and own.uses == 1 and self._own_bytes > self._guarantee
        if own is None or oldest is None:
            return oldest
        return own if self._spares and oldest.uses > 1 else oldest

    def _find_rivals(self) -> None:
        """Have the accounts furthest above the guarantee that have something to give."""
        draft, guarantee, rivals, again = self.draft, self._guarantee, self._rivals, self._again
        crowded = len(rivals) + len(again) > RIVALS_MAX
        if self._rest_below and not crowded:
            self._look_again()
            return
        # One alone beside all rivals is the asking account, which gave although it was behind them.
        if crowded and len(again) > 1:  # they compete anew
            again.update(dict.fromkeys(rivals))
            rivals.clear()
        for name in again:
            draft.offer(name)
        again.clear()
        least = guarantee + self._smallest
        while len(rivals) < RIVALS_MAX:
            largest = draft.largest()
            if largest is None or -largest[0] < least:
                self._rest_below = True
                if largest is not None:
                    draft.offer(largest[1])
                if self._own_bytes > guarantee:
                    again[self._account] = None  # of its own it may give more than what is lent
                    self._look_again()
                return
            used, name = -largest[0], largest[1]
            if run := self._first(name, used):
                rivals[name] = run
        self._rest_below = False

    def _look_again(self) -> None:
        """At a few that may give something, where nobody else does."""
        for name in self._again:
            used = self.draft.used_bytes(name)
            if used > self._guarantee and (run := self._first(name, used)):
                self._rivals[name] = run
        self._again.clear()

    def _first(self, name: bytes, used: int) -> Run[K] | None:
        """The account's first block to go that it may lose to the asking one. `used`: its bytes."""
        slack = used if name == self._account else used - self._guarantee
        lanes = self._lanes.get(name, _NONE)
        if len(lanes) == 1:
            (lane,) = lanes.values()
            return self._settle(lane) if lane.size_bytes <= slack else None
        fit = [self._head(lane) for lane in lanes.values() if lane.size_bytes <= slack]
        return min(filter(None, fit), key=itemgetter(0), default=(None, None))[1]

    def _head(self, lane: Lane[K]) -> tuple[Rank, Run[K]] | None:
        """The lane's first block to go and what it is worth."""
        if lane not in self._heads:
            run = self._settle(lane)
            self._heads[lane] = None if run is None else (self._order.value(run), run)
        return self._heads[lane]

    def _settle(self, lane: Lane[K]) -> Run[K] | None:
        """The head of a lane whose last block may go; it stays in its place."""
        cut = self.cut
        while (run := lane.head()) is not None:
            children = run.children
            if run.pins or (children and children > self.gone.get(run.keys[-1], 0)):
                lane.pop()
            elif run.keys[-1 - cut.get(run, 0) if cut else -1] in self._protected:
                self.passed.append(lane.pop())
            else:
                return run
        return None

    def _take(self, run: Run[K], wanted_bytes: int) -> int:
        """Count blocks of a chosen run as gone, and up its chain each that would be chosen next.

        Return their bytes: `wanted_bytes` or more only with the last of them.
        """
        account, lane, size = run.account, run.lane, run.size_bytes
        used = self.draft.used_bytes(account)
        most = min(wanted_bytes - 1, used - self._least(run))
        wanted = left = 1 if most < size else 1 + int(most // size)
        self._heads.pop(lane, None)
        leaf: Run[K] | None = None  # what may go next, and was in no heap
        while True:
            if len(run.keys) == 1:
                self.victims.append(run.keys[0])
                left -= 1
            else:
                left -= self._cut(run, left)
                if run in self.cut:
                    break
            if run.stamp:  # the chosen one, still the head of its lane: `_choose` just looked at it
                lane.pop()
            self.taken.append(run)
            self.gone.pop(run.keys[-1], None)
            leaf = self._above(run)
            if leaf is None or not left or leaf.lane is not lane or leaf.rank > run.rank:
                break
            if self._spares and leaf.uses > 1:
                break
            run = leaf
            run.stamp = 0  # it may be in the heap: what is left of it there counts no more
        self.lost[lane] = self.lost.get(lane, 0) + wanted - left
        moved = (wanted - left) * size
        self.draft.used[account] = used - moved
        self._reconsider(account)
        if leaf is not None:
            self._may_go(leaf, account)
        return moved

    def _cut(self, run: Run[K], blocks: int) -> int:
        """Take up to so many blocks from the end of a run, as far as none is protected."""
        keys, protected = run.keys, self._protected
        end = len(keys) - self.cut.pop(run, 0)
        part = keys[max(0, end - blocks) : end][::-1]
        if not protected.isdisjoint(part):
            part = list(takewhile(lambda key: key not in protected, part))
        if len(part) < end:
            self.cut[run] = len(keys) - end + len(part)
        self.victims += part
        return len(part)

    def _above(self, run: Run[K]) -> Run[K] | None:
        """The run that a taken one continues, if its last block may go now."""
        key = run.parent
        if key is None:
            return None
        gone = self.gone[key] = self.gone.get(key, 0) + 1
        above = self._runs.get(key)
        if above is None or gone < above.children or above.pins or key in self._protected:
            return None
        return above

    def _least(self, run: Run[K]) -> float:
        """How much the account of a chosen block must hold for its next to be chosen after it,
        if that ranks before it and, where `_spares`, was never used again either.
        """
        account, rivals, guarantee = run.account, self._rivals, self._guarantee
        if len(self._lanes[account]) > 1:
            return math.inf  # another lane may give the next
        own = account == self._account
        if own and self._rest_below and len(rivals) == (account in rivals):
            return 0
        least = guarantee + (1 if own else run.size_bytes)
        if self._rest_below or account not in rivals:
            return least
        return max(least, guarantee + self._smallest, self.draft.largest_bytes() + 1)

    def _may_go(self, run: Run[K], account: bytes) -> None:
        """A block is a leaf now, as its last child has gone from an account."""
        self._heads.pop(run.lane, None)
        if not run.stamp:
            run.lane.push(run)
        if run.account != account:  # it may have had nothing to give before
            self._reconsider(run.account)

    def _reconsider(self, account: bytes) -> None:
        self._rivals.pop(account, None)
        self._again[account] = None
