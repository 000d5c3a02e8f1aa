"""Whose bytes fill a tier: a guaranteed share for each account, and the rest lent (L11)."""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass, field

from scopekv.errors import Misuse


@dataclass(frozen=True, slots=True)
class Shares:
    """How a capacity is divided.

    `guaranteed_fraction` of it is divided evenly among the accounts that hold bytes now and the
    one that asks; the rest, and what of the guaranteed part is not used, is lent to anyone.
    """

    capacity_bytes: int
    guaranteed_fraction: float = 0.8
    _guaranteed_bytes: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.capacity_bytes < 1 or not 0 <= self.guaranteed_fraction <= 1:
            raise Misuse("shares need a capacity from 1 byte on and a fraction from 0 to 1")
        guaranteed = int(self.capacity_bytes * self.guaranteed_fraction)
        object.__setattr__(self, "_guaranteed_bytes", guaranteed)

    def guarantee_bytes(self, accounts: int) -> int:
        """What each of `accounts` accounts may keep whatever the others do."""
        return self._guaranteed_bytes // max(1, accounts)


class Ledger:
    """Bytes in use by account, in order of size.

    All guarantees are equal, so the account that holds most is furthest above its guarantee.
    Cost: O(1) a change, and for the next look at the order O(log accounts) for each that changed,
    beside moving pointers, which 10,000 accounts do not notice.
    """

    __slots__ = ("_alike", "_changed", "_placed", "_sizes", "_total", "_used")

    def __init__(self) -> None:
        self._used: dict[bytes, int] = {}
        self._alike: dict[int, list[bytes]] = {}  # -bytes: accounts that hold so much, sorted
        self._sizes: list[int] = []  # its keys, sorted
        self._placed: dict[bytes, int] = {}  # the bytes it has there
        self._changed: set[bytes] = set()  # accounts whose place there is out of date
        self._total = 0

    def __len__(self) -> int:
        return len(self._used)

    def used_bytes(self, account: bytes | None = None) -> int:
        return self._total if account is None else self._used.get(account, 0)

    def accounts_for(self, account: bytes) -> int:
        """How many share the guaranteed part when `account` asks."""
        return len(self._used) + (account not in self._used)

    def add(self, account: bytes, size_bytes: int) -> None:
        self._total += size_bytes
        self._used[account] = self._used.get(account, 0) + size_bytes
        self._changed.add(account)

    def take(self, account: bytes, size_bytes: int) -> None:
        self._total -= size_bytes
        left = self._used[account] - size_bytes
        if left:
            self._used[account] = left
        else:
            del self._used[account]
        self._changed.add(account)

    def by_size(self) -> Iterator[tuple[int, bytes]]:
        """(-bytes, account) of every account, the largest first. Not across changes."""
        placed, used = self._placed, self._used
        for account in self._changed:
            before, now = placed.get(account, 0), used.get(account, 0)
            if before != now:
                if before:
                    self._leave(account, -before)
                if now:
                    self._enter(account, -now)
                    placed[account] = now
                else:
                    del placed[account]
        self._changed.clear()
        alike = self._alike
        return ((size, account) for size in self._sizes for account in alike[size])

    def _enter(self, account: bytes, negative: int) -> None:
        alike = self._alike.get(negative)
        if alike is None:
            self._alike[negative] = [account]
            insort(self._sizes, negative)
        else:
            insort(alike, account)

    def _leave(self, account: bytes, negative: int) -> None:
        alike = self._alike[negative]
        if len(alike) > 1:
            del alike[bisect_left(alike, account)]
        else:
            del self._alike[negative]
            del self._sizes[bisect_left(self._sizes, negative)]

    def may_free(self, size_bytes: int, account: bytes, guarantee: int, unit: int) -> bool:
        """Whether so many bytes could go for an account, if nothing of it and of what others have
        above the guarantee was held. All blocks are multiples of `unit` bytes.

        Cost: O(accounts above the guarantee), as far as it takes.
        """
        size_bytes -= self.used_bytes(account)
        for negative, name in self.by_size():
            above = -negative - guarantee
            if size_bytes <= 0 or above < unit:
                break
            if name != account:
                size_bytes -= above // unit * unit
        return size_bytes <= 0


class Draft:
    """A ledger as it would be after some takes. Changes nothing of the ledger.

    `used`: bytes of the accounts that differ from the ledger.
    """

    __slots__ = ("_before", "_following", "_offered", "_order", "used")

    def __init__(self, ledger: Ledger) -> None:
        self._before, self._order = ledger._used, ledger.by_size()
        self._following = next(self._order, None)  # the first that was not given yet
        self.used: dict[bytes, int] = {}
        self._offered: list[tuple[int, bytes]] = []  # a heap of those to consider again

    def used_bytes(self, account: bytes) -> int:
        used = self.used.get(account)
        return self._before.get(account, 0) if used is None else used

    def largest(self) -> tuple[int, bytes] | None:
        """(-bytes, account) of who holds most; once: `offer` it to have it considered again."""
        following, used, offered = self._following, self.used, self._offered
        while following is not None and following[1] in used:
            following = next(self._order, None)
        while offered and (following is None or offered[0] < following):
            again = heapq.heappop(offered)
            if -again[0] == self.used_bytes(again[1]):
                self._following = following
                return again
        self._following = None if following is None else next(self._order, None)
        return following

    def largest_bytes(self) -> int:
        """No account that `largest` may still give holds more."""
        most, following, used = 0, self._following, self.used
        while following is not None and following[1] in used:
            following = self._following = next(self._order, None)
        if self._offered:
            most = -self._offered[0][0]
        return most if following is None else max(most, -following[0])

    def offer(self, account: bytes) -> None:
        if used := self.used_bytes(account):
            heapq.heappush(self._offered, (-used, account))
