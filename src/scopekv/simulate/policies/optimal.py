"""What is used last goes first (Belady, 1966): a bound for those who do not know the future."""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Collection, Iterable
from typing import Any

from scopekv.core.lru import Entry, QueuePolicy
from scopekv.simulate.traces import TracedRequest

NEVER = 1 << 60


class Future:
    """For each use of a block in order, the number of the request that uses it next.

    Reads the whole trace once; 16 bytes a block of a request.
    """

    def __init__(self, requests: Iterable[TracedRequest]) -> None:
        self._uses: dict[int, array[int]] = {}
        self._next: dict[int, int] = {}
        for number, request in enumerate(requests):
            for block in request.block_ids:
                self._uses.setdefault(block, array("q")).append(number)

    def use(self, block: int) -> int:
        """Count one use; return the request of the next one, or NEVER."""
        at = self._next[block] = self._next.get(block, 0) + 1
        uses = self._uses[block]
        return uses[at] if at < len(uses) else NEVER


class OptimalPolicy(QueuePolicy[int]):
    """Furthest next use first; of equals the deepest, so a chain goes from its tail.

    Every block of a request must be touched or inserted, once. Knows no pins.
    Cost: O(log n) a step.
    """

    def __init__(self, future: Future) -> None:
        super().__init__()
        self._future = future
        self._due: dict[int, int] = {}
        self._heap: list[tuple[int, int, int]] = []

    def insert(self, key: int, entry: Entry[int]) -> None:
        super().insert(key, entry)
        self._used_again(key)

    def touch(self, key: int) -> None:
        self._used_again(key)

    def _due_at(self, key: int) -> int:
        return self._future.use(key)

    def _used_again(self, key: int) -> None:
        due = self._due[key] = self._due_at(key)
        heapq.heappush(self._heap, (-due, -self._entries[key].depth, key))

    def remove(self, key: int) -> None:
        super().remove(key)
        self._due.pop(key, None)

    def victims(
        self, size_bytes: int, account: bytes, protected: Collection[int] = ()
    ) -> list[int] | None:
        del account
        taken: list[Any] = []
        found: dict[int, None] = {}
        while size_bytes > 0 and self._heap:
            entry = heapq.heappop(self._heap)
            due, _, key = entry
            if self._due.get(key) != -due or key in found:
                continue  # used since, or gone
            taken.append(entry)
            if key not in protected:
                found[key] = None
                size_bytes -= self._entries[key].size_bytes
        for entry in taken:
            heapq.heappush(self._heap, entry)
        return list(found) if size_bytes <= 0 else None


class ToldWhetherPolicy(OptimalPolicy):
    """LRU that is told whether a block will ever be used again, and not when.

    What nobody uses again goes first. A bound for those who predict whether and know no rhythm.
    """

    def __init__(self, future: Future) -> None:
        super().__init__(future)
        self._serial = 0

    def _due_at(self, key: int) -> int:
        self._serial += 1
        return NEVER if super()._due_at(key) == NEVER else NEVER - self._serial
