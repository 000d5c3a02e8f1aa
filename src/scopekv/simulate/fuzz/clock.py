"""Virtual time: one monotonic clock, and a wall clock for each machine that may be set wrongly."""

from __future__ import annotations

EPOCH_SECONDS = 1_800_000_000.0  # what a wall clock shows at the start


class Clock:
    """Monotonic seconds since the start. Only rises."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def advance(self, seconds: float) -> None:
        self.seconds += seconds

    def mono(self) -> float:
        return self.seconds

    def mono_ms(self) -> int:
        return int(self.seconds * 1000)


class Machine:
    """A machine's wall clock, which `offset` puts wrong."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.offset = 0.0

    def wall(self) -> float:
        return EPOCH_SECONDS + self._clock.seconds + self.offset

    def wall_ms(self) -> int:
        return int(self.wall() * 1000)
