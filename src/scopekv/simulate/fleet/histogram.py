"""Times in a bounded space: buckets half a percent wide."""

from __future__ import annotations

import math
from collections import Counter

from scopekv.errors import Misuse

_GROWTH = 1.005
_STEP = math.log(_GROWTH)
LEAST_SECONDS = 1e-6


class Histogram:
    """Of times from a microsecond on, each kept to half a percent. 5,000 buckets span a day."""

    __slots__ = ("_buckets", "count", "total_seconds")

    def __init__(self) -> None:
        self._buckets: Counter[int] = Counter()
        self.count = 0
        self.total_seconds = 0.0

    def add(self, seconds: float) -> None:
        self._buckets[int(math.log(max(seconds, LEAST_SECONDS) / LEAST_SECONDS) / _STEP)] += 1
        self.count += 1
        self.total_seconds += seconds

    def at(self, share: float) -> float:
        """The time that `share` (above 0, up to 1) of all do not exceed; 0 if there are none."""
        if not 0 < share <= 1:
            raise Misuse(f"a percentile takes a share above 0, at most 1, not {share}")
        wanted, seen = math.ceil(share * self.count), 0
        for bucket in sorted(self._buckets):
            seen += self._buckets[bucket]
            if seen >= wanted:
                return LEAST_SECONDS * math.exp((bucket + 0.5) * _STEP)
        return 0.0
