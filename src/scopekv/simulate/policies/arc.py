"""ARC: recency and frequency, balanced by what was missed (Megiddo and Modha, FAST'03)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection

from scopekv.core.lru import Entry, K, QueuePolicy


class ArcPolicy(QueuePolicy[K]):
    """Counts blocks, so they should be of one size. Cost: O(1) a step.

    `capacity`: blocks. T1 holds what was used once, T2 what was used again; B1 and B2 the names of
    what they lost. A miss that B1 names moves the target size of T1 up, one of B2 down.
    """

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self._capacity, self._target = capacity, 0.0
        self._once: OrderedDict[K, None] = OrderedDict()
        self._often: OrderedDict[K, None] = OrderedDict()
        self._lost_once: OrderedDict[K, None] = OrderedDict()
        self._lost_often: OrderedDict[K, None] = OrderedDict()

    def insert(self, key: K, entry: Entry[K]) -> None:
        super().insert(key, entry)
        once, often = len(self._lost_once), len(self._lost_often)
        if key in self._lost_once:
            del self._lost_once[key]
            self._target = min(self._capacity, self._target + max(1.0, often / once))
            self._often[key] = None
        elif key in self._lost_often:
            del self._lost_often[key]
            self._target = max(0.0, self._target - max(1.0, once / often))
            self._often[key] = None
        else:
            self._once[key] = None

    def touch(self, key: K) -> None:
        if key in self._once:
            del self._once[key]
            self._often[key] = None
        elif key in self._often:
            self._often.move_to_end(key)

    def remove(self, key: K) -> None:
        super().remove(key)
        if key in self._once:
            del self._once[key]
            self._lost_once[key] = None
        elif key in self._often:
            del self._often[key]
            self._lost_often[key] = None
        while len(self._lost_once) > max(0, self._capacity - len(self._once)):
            self._lost_once.popitem(last=False)
        names = self._lost_once, self._lost_often
        room = max(0, 2 * self._capacity - len(self._once) - len(self._often))
        while sum(map(len, names)) > room:
            (self._lost_often or self._lost_once).popitem(last=False)

    def victims(
        self, size_bytes: int, account: bytes, protected: Collection[K] = ()
    ) -> list[K] | None:
        del account
        found: list[K] = []
        once = (key for key in self._once if key not in protected and key not in self._pins)
        often = (key for key in self._often if key not in protected and key not in self._pins)
        left = len(self._once)
        while size_bytes > 0:
            key = next(once, None) if left > self._target else next(often, None)
            if key is None:
                key = next(once, None) or next(often, None)
            if key is None:
                return None
            left -= key in self._once
            found.append(key)
            size_bytes -= self._entries[key].size_bytes
        return found
