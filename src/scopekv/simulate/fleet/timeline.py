"""What happened when, in a bounded number of bins: they grow twice as wide where time goes on."""

from __future__ import annotations

from dataclasses import dataclass, field

BINS_MAX = 120


@dataclass(slots=True)
class Bin:
    """One stretch of time. `work`: seconds of prefill begun in it, by instance."""

    requests: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    ttft_seconds: float = 0.0
    work: dict[int, float] = field(default_factory=dict)

    def join(self, other: Bin) -> None:
        self.requests += other.requests
        self.input_tokens += other.input_tokens
        self.cached_tokens += other.cached_tokens
        self.ttft_seconds += other.ttft_seconds
        for instance, seconds in other.work.items():
            self.work[instance] = self.work.get(instance, 0.0) + seconds


class Timeline:
    """From 0 s on."""

    def __init__(self, width_seconds: float = 1.0) -> None:
        self.width_seconds = width_seconds
        self.bins: list[Bin] = []

    def at(self, seconds: float) -> Bin:
        """The bin of a moment."""
        index = int(seconds / self.width_seconds)
        while index >= BINS_MAX:
            self.width_seconds *= 2
            old, self.bins = self.bins, []
            for number in range(0, len(old), 2):
                self.bins.append(old[number])
                if number + 1 < len(old):
                    self.bins[-1].join(old[number + 1])
            index = int(seconds / self.width_seconds)
        while index >= len(self.bins):
            self.bins.append(Bin())
        return self.bins[index]
