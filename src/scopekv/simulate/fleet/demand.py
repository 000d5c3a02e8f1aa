"""How unequal tenants are: the skew of demand among API clients of a public service.

Requests of a client over the mean of its model's clients, 422 clients of five models, as quantiles
at (i + 0.5) / 20: ServeGen (Alibaba, github.com/alibaba/ServeGen, Apache-2.0), summarised.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from itertools import accumulate

from scopekv.errors import Misuse

SERVEGEN = (
    *(0.0015, 0.0046, 0.0072, 0.014, 0.0219, 0.032, 0.0462, 0.057, 0.0862, 0.1137),
    *(0.1661, 0.2327, 0.3223, 0.4054, 0.5266, 0.773, 1.1735, 1.7448, 2.7138, 8.7249),
)
_LARGEST = 56.99  # times the mean, of all 422


def servegen_weights(count: int) -> list[float]:
    """Demand of `count` tenants in any unit, smallest first: the quantiles, log-interpolated."""
    logs = [math.log(each) for each in SERVEGEN]
    logs.append(math.log(_LARGEST))
    weights = []
    for index in range(count):
        at = min(max((index + 0.5) / count * len(SERVEGEN) - 0.5, 0.0), len(SERVEGEN) - 0.5)
        low = int(at)
        width = 1.0 if low < len(SERVEGEN) - 1 else 0.5  # the last stretch ends at the largest
        weights.append(math.exp(logs[low] + (at - low) / width * (logs[low + 1] - logs[low])))
    return weights


class Demand:
    """Draws tenants by their demand."""

    __slots__ = ("_ends",)

    def __init__(self, weights: list[float]) -> None:
        if not weights or min(weights) <= 0:
            raise Misuse("demand takes at least one tenant, each with a weight above 0")
        self._ends = list(accumulate(weights))

    def pick(self, at: float) -> int:
        """The tenant at `at` in [0, 1) of all demand."""
        return min(bisect_right(self._ends, at * self._ends[-1]), len(self._ends) - 1)
