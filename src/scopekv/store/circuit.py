"""Whether a tier is in use: suspended at the first trouble, tried again soon, then less often."""

from __future__ import annotations

import threading
from collections.abc import Callable

RELAPSE_SECONDS = 10.0  # trouble within this after a recovery goes on with the longer waits


class Circuit:
    """Suspended or not, and when to try again. Thread-safe, touches nothing."""

    def __init__(
        self, first_seconds: float, longest_seconds: float, monotonic: Callable[[], float]
    ) -> None:
        self._first = first_seconds
        self._longest = longest_seconds
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._wait = first_seconds
        self._probe_at: float | None = None
        self._recovered_at = float("-inf")

    @property
    def suspended(self) -> bool:
        return self._probe_at is not None

    def trip(self) -> bool:
        """Suspend. True if it was in use until now."""
        now = self._monotonic()
        with self._lock:
            if self._probe_at is not None:
                return False
            relapse = now - self._recovered_at < RELAPSE_SECONDS
            self._wait = min(self._wait * 2, self._longest) if relapse else self._first
            self._probe_at = now + self._wait
            return True

    def probe_due(self) -> float | None:
        """Seconds until the next probe, 0 when it is due; None while in use."""
        with self._lock:
            if self._probe_at is None:
                return None
            return max(0.0, self._probe_at - self._monotonic())

    def probed(self, well: bool) -> None:
        """Tell how a probe went: in use again, or wait twice as long."""
        now = self._monotonic()
        with self._lock:
            if self._probe_at is None:
                return
            if well:
                self._probe_at = None
                self._recovered_at = now
            else:
                self._wait = min(self._wait * 2, self._longest)
                self._probe_at = now + self._wait
