"""Virtual time: what is due next happens next. Equal times go in the order they were asked for."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any


class Clock:
    """Time and what is to happen. `now` never goes back."""

    __slots__ = ("_due", "_number", "now")

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, int, Callable[..., None], Any]] = []
        self._number = 0

    def at(self, when: float, call: Callable[..., None], argument: Any) -> None:
        """Call `call(argument)` at `when`, or now if that is past."""
        self._number += 1
        heapq.heappush(self._due, (max(when, self.now), self._number, call, argument))

    def run_to(self, when: float) -> None:
        """Let everything happen that is due before or at `when`, then it is `when`."""
        due = self._due
        while due and due[0][0] <= when:
            self.now, _, call, argument = heapq.heappop(due)
            call(argument)
        self.now = max(self.now, when)

    def run_out(self) -> None:
        """Let everything happen."""
        due = self._due
        while due:
            self.now, _, call, argument = heapq.heappop(due)
            call(argument)
