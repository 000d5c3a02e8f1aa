"""What left a store lately, and when: a listing that began before may have seen it still."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from scopekv.ports import ObjectKey

DEPARTURES_MAX = 65_536


class Departures:
    """Times by object, the latest so many. For one caller at a time: the index, under its lock."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._at: OrderedDict[ObjectKey, float] = OrderedDict()

    def add(self, key: ObjectKey) -> None:
        self._at[key] = self._monotonic()
        self._at.move_to_end(key)
        if len(self._at) > DEPARTURES_MAX:
            self._at.popitem(last=False)

    def back(self, key: ObjectKey) -> None:
        """It is there again."""
        self._at.pop(key, None)

    def since(self, key: ObjectKey, began: float) -> bool:
        """Whether it left after `began` (monotonic), so that what was seen since may be old."""
        return self._at.get(key, float("-inf")) >= began
