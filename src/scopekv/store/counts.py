"""Counters and measured speed of a tier. Thread-safe."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable

from scopekv.core.fetching import TierMeter, TierSpeed

COUNTERS = (
    "hits", "misses", "loaded", "load_misses", "stored", "skipped", "no_room",
    "dropped", "corrupt", "quarantined", "evicted", "expired", "purged", "errors", "stalls",
    "suspensions", "manifest_bad", "bytes_read", "bytes_written",
)  # fmt: skip


class Counts:
    """Whole numbers that only rise."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter(dict.fromkeys(COUNTERS, 0))

    def add(self, name: str, count: int = 1) -> None:
        with self._lock:
            self._counts[name] += count

    def all(self) -> dict[str, int]:
        with self._lock:
            return dict(self._counts)


class Meter:
    """`core.fetching.TierMeter` for several threads, and when a load was measured last."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._meter = TierMeter()
        self.measured_at = float("-inf")

    def called(self, seconds: float) -> None:
        """A round trip that moved next to nothing. Alone it says too little: loads come first."""
        with self._lock:
            if self.measured_at > float("-inf"):
                self._meter.observe(1, seconds)

    def loaded(self, size_bytes: int, seconds: float) -> None:
        """So many bytes were there so long after they were asked for."""
        with self._lock:
            self._meter.observe(size_bytes, seconds)
            self.measured_at = self._monotonic()

    def gave_up(self, size_bytes: int, seconds: float) -> None:
        with self._lock:
            self._meter.gave_up(size_bytes, seconds)

    def speed(self, suspended: bool) -> TierSpeed:
        with self._lock:
            return self._meter.speed(suspended=suspended)
