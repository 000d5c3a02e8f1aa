"""Whether something that may fail is in use: left alone after trouble, tried again soon.

closed --failures in a row--> open --after a wait--> one probe --well--> closed
                               ^                        |
                               +------- longer wait ----+ badly
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from scopekv.errors import Misuse


@dataclass(frozen=True, slots=True)
class CircuitLimits:
    """`failures`: so many in a row open it. Waits double from the first to the longest."""

    failures: int = 3
    first_seconds: float = 1.0
    longest_seconds: float = 4.0  # below the 5 s in which an instance must be back in use
    probe_seconds: float = 30.0  # a probe that nobody reported is forgotten

    def __post_init__(self) -> None:
        if self.failures < 1 or not 0 < self.first_seconds <= self.longest_seconds < math.inf:
            raise Misuse("a circuit opens after failures, for a time above 0")


class Circuit:
    """One circuit. Touches nothing; `now` is monotonic seconds. Not thread-safe."""

    __slots__ = ("_failures", "_limits", "_probe_until", "_until", "_wait")

    def __init__(self, limits: CircuitLimits | None = None) -> None:
        self._limits = limits or CircuitLimits()
        self._failures = 0
        self._wait = self._limits.first_seconds
        self._until: float | None = None  # None: closed
        self._probe_until = -math.inf

    @property
    def open(self) -> bool:
        return self._until is not None

    def allows(self, now: float) -> bool:
        """Whether a request may go now: always while closed, one at a time after the wait."""
        return self._until is None or (now >= self._until and now >= self._probe_until)

    def begins(self, now: float) -> bool:
        """A request goes; while open it is the probe, and others wait for what becomes of it.

        True for the probe, whose end must be told, however it ends.
        """
        if self._until is None:
            return False
        self._probe_until = now + self._limits.probe_seconds
        return True

    def probed(self) -> None:
        """The probe has ended. One that said nothing (its client left) makes room for another."""
        self._probe_until = -math.inf

    def worked(self) -> None:
        """A request was answered: closed, and as new."""
        self._failures, self._until = 0, None
        self._wait = self._limits.first_seconds
        self._probe_until = -math.inf

    def failed(self, now: float) -> bool:
        """A request failed. True if that opened the circuit."""
        self._failures += 1
        self._probe_until = -math.inf
        if self._until is None:
            if self._failures < self._limits.failures:
                return False
            self._until = now + self._wait
            return True
        if now >= self._until:  # a probe; what was sent before it opened says nothing new
            self._wait = min(2 * self._wait, self._limits.longest_seconds)
            self._until = now + self._wait
        return False
