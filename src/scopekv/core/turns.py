"""Who waits for a place, and whose turn it is: fair between organisations (L11).

    places full -> a line per organisation, served in rotation
    lines full  -> the newest of the longest line gives way to a shorter one, else refused

An organisation alone may fill all lines; with others it keeps its share, whatever they send.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable
from typing import Generic, TypeVar

from scopekv.errors import Misuse

T = TypeVar("T", bound=Hashable)


class Turns(Generic[T]):
    """Waiting lines with at most `waiting_max` waiters in all. Touches nothing."""

    def __init__(self, waiting_max: int) -> None:
        if waiting_max < 0:
            raise Misuse("the number that may wait is from 0 on")
        self._max = waiting_max
        self._lines: OrderedDict[str, deque[T]] = OrderedDict()  # the first is served next
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def waiting(self, org: str) -> int:
        return len(self._lines.get(org, ()))

    def join(self, org: str, waiter: T) -> T | None:
        """Line up; return who must go for it: nobody, another waiter, or this one itself."""
        displaced: T | None = None
        if self._count >= self._max:
            longest = max(self._lines, key=lambda name: len(self._lines[name]), default=org)
            if self.waiting(longest) <= self.waiting(org) + 1:
                return waiter
            displaced = self._lines[longest].pop()
            self._count -= 1
        self._lines.setdefault(org, deque()).append(waiter)
        self._count += 1
        return displaced

    def leave(self, org: str, waiter: T) -> None:
        """Go without a turn. Nothing if it does not wait. Cost: O(its line)."""
        line = self._lines.get(org)
        if line is not None and waiter in line:
            line.remove(waiter)
            self._count -= 1
            if not line:
                del self._lines[org]

    def next(self) -> T | None:
        """Take out whose turn it is: the first of each line in rotation."""
        if not self._lines:
            return None
        org, line = next(iter(self._lines.items()))
        waiter = line.popleft()
        self._count -= 1
        if line:
            self._lines.move_to_end(org)
        else:
            del self._lines[org]
        return waiter
