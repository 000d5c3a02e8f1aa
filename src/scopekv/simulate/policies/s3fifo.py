"""S3-FIFO: a small queue that filters, a main queue, and ghosts (Yang et al., SOSP'23)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection

from scopekv.core.lru import Entry, K, QueuePolicy

SMALL_FRACTION = 0.1
FREQUENCY_MAX = 3


class S3FifoPolicy(QueuePolicy[K]):
    """Counts blocks, so they should be of one size. Cost: O(1) a step, amortised.

    `capacity`: blocks. From the small queue what was used again moves to the main one; the rest
    leaves, and its name is kept as long as the main queue is. Pins are not known to it.
    """

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self._small_max = max(1, int(capacity * SMALL_FRACTION))
        self._ghosts_max = max(1, capacity - self._small_max)
        self._small: OrderedDict[K, None] = OrderedDict()
        self._main: OrderedDict[K, None] = OrderedDict()
        self._ghosts: OrderedDict[K, None] = OrderedDict()
        self._frequency: dict[K, int] = {}

    def insert(self, key: K, entry: Entry[K]) -> None:
        super().insert(key, entry)
        self._frequency[key] = 0
        if key in self._ghosts:
            del self._ghosts[key]
            self._main[key] = None
        else:
            self._small[key] = None

    def touch(self, key: K) -> None:
        if key in self._frequency:
            self._frequency[key] = min(FREQUENCY_MAX, self._frequency[key] + 1)

    def remove(self, key: K) -> None:
        super().remove(key)
        self._frequency.pop(key, None)
        self._main.pop(key, None)
        if key in self._small:
            del self._small[key]
            self._ghosts[key] = None
            if len(self._ghosts) > self._ghosts_max:
                self._ghosts.popitem(last=False)

    def victims(
        self, size_bytes: int, account: bytes, protected: Collection[K] = ()
    ) -> list[K] | None:
        del account
        taken: list[tuple[OrderedDict[K, None], K]] = []
        kept: list[tuple[OrderedDict[K, None], K]] = []
        while size_bytes > 0 and (self._small or self._main):
            queue = self._main if len(self._small) < self._small_max else self._small
            queue, key = self._next(queue or self._small)
            (kept if key in protected else taken).append((queue, key))
            size_bytes -= 0 if key in protected else self._entries[key].size_bytes
        for queue, key in reversed(taken + kept):
            queue[key] = None
            queue.move_to_end(key, last=False)
        return [key for _, key in taken] if size_bytes <= 0 else None

    def _next(self, queue: OrderedDict[K, None]) -> tuple[OrderedDict[K, None], K]:
        """Take out the block that goes next; what earned a second chance moves."""
        while True:
            key = next(iter(queue))
            del queue[key]
            if queue is self._small and self._frequency[key] > 1:
                self._frequency[key] = 0
                self._main[key] = None
                if not self._small:
                    queue = self._main
            elif queue is self._main and self._frequency[key]:
                self._frequency[key] -= 1
                self._main[key] = None
            else:
                return queue, key
