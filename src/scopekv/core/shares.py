"""Whose bytes fill a tier: a guaranteed share for each account, and the rest lent (L11)."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

from scopekv.errors import Misuse

_SPARE = 64


@dataclass(frozen=True, slots=True)
class Shares:
    """How a capacity is divided.

    `guaranteed_fraction` of it is divided evenly among the accounts that hold bytes now and the
    one that asks; the rest, and what of the guaranteed part is not used, is lent to anyone.
    """

    capacity_bytes: int
    guaranteed_fraction: float = 0.8

    def __post_init__(self) -> None:
        if self.capacity_bytes < 1 or not 0 <= self.guaranteed_fraction <= 1:
            raise Misuse("shares need a capacity from 1 byte on and a fraction from 0 to 1")

    def guarantee_bytes(self, accounts: int) -> int:
        """What each of `accounts` accounts may keep whatever the others do."""
        return int(self.capacity_bytes * self.guaranteed_fraction) // max(1, accounts)


class Ledger:
    """Bytes in use by account, in order of size.

    All guarantees are equal, so the account that holds most is furthest above its guarantee.
    Cost: O(log accounts) a change, amortised.
    """

    __slots__ = ("_by_size", "_changed", "_total", "_used")

    def __init__(self) -> None:
        self._used: dict[bytes, int] = {}
        self._by_size: list[tuple[int, bytes]] = []  # (-bytes, account); most are out of date
        self._changed: set[bytes] = set()  # accounts whose entry is out of date
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
        used = self._used[account] - size_bytes
        if used:
            self._used[account] = used
            self._changed.add(account)
        else:
            self._changed.discard(account)
            self._used.pop(account, None)

    def by_size(self) -> list[tuple[int, bytes]]:
        """A heap of (-bytes, account) that has every account's present size, and old ones."""
        heap, used = self._by_size, self._used
        for account in self._changed:
            if size := used.get(account):
                heapq.heappush(heap, (-size, account))
        self._changed.clear()
        self.tidy()
        return heap

    def tidy(self) -> None:
        """Drop what is out of date once it is the greater part."""
        if len(self._by_size) > 4 * len(self._used) + _SPARE:
            self._by_size[:] = [(-size, name) for name, size in self._used.items()]
            heapq.heapify(self._by_size)


class Draft:
    """A ledger as it would be after some takes. Changes no figure of the ledger."""

    __slots__ = ("_before", "_heap", "_held", "_ledger", "_offered", "_out", "_used")

    def __init__(self, ledger: Ledger) -> None:
        self._ledger, self._before = ledger, ledger._used
        self._heap = ledger.by_size()
        self._used: dict[bytes, int] = {}  # where it differs from the ledger
        self._out: set[bytes] = set()  # accounts whose entry was popped
        self._offered: dict[bytes, int] = {}  # and put back: with this size
        self._held: bytes | None = None  # put back, and larger than all in the heap

    def used_bytes(self, account: bytes) -> int:
        used = self._used.get(account)
        return self._before.get(account, 0) if used is None else used

    def largest(self) -> bytes | None:
        """The account that holds most; pops it: `offer` it again to have it considered again."""
        heap, held, self._held = self._heap, self._held, None
        if held is not None and (used := self.used_bytes(held)):
            self._offered.pop(held, None)
            if not heap or used > -heap[0][0]:
                return held
            heapq.heappush(heap, (-used, held))
        while heap:
            negative, account = heapq.heappop(heap)
            if -negative == self.used_bytes(account) > 0:
                self._out.add(account)
                self._offered.pop(account, None)
                return account
            if -negative == self._ledger.used_bytes(account):
                self._out.add(account)  # in date for the ledger, if not for the draft
        return None

    def offer(self, account: bytes) -> None:
        used = self.used_bytes(account)
        if not used or self._offered.get(account) == used or account == self._held:
            return
        self._offered[account] = used
        self._out.add(account)
        if self._held is None and (not self._heap or used > -self._heap[0][0]):
            self._held = account  # sizes in the heap are the present ones, or too large
        else:
            heapq.heappush(self._heap, (-used, account))

    def take(self, account: bytes, size_bytes: int) -> None:
        """Count bytes as gone. `offer` the account to have it considered again."""
        self._used[account] = self.used_bytes(account) - size_bytes

    def taken(self) -> Iterator[tuple[bytes, int]]:
        """(account, bytes taken from it)."""
        for account, left in self._used.items():
            yield account, self._before[account] - left

    def close(self) -> None:
        """Put the ledger's order back as it was."""
        for account in self._out:
            heapq.heappush(self._heap, (-self._ledger.used_bytes(account), account))
        self._ledger.tidy()
