"""How fast prefill and tiers are now, learned from what they did (L9).

Both are a sum of terms with coefficients that are not negative:

    prefill of tokens [a, b)   c0 + c1 (b - a) + c2 (b^2 - a^2) / 2     attention makes it quadratic
    fetch of n bytes           latency + n / bandwidth

fitted by least squares of the relative error with slow forgetting (the shape), times a level that
follows quickly (the moment). One observation counts for at most twice the expected, and four times
once all err on one side: an outlier moves little, a real change is followed in a few steps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from operator import mul

from scopekv.core.values import light_value
from scopekv.errors import Misuse

PREFILL_DECAY = 0.96  # the shape of the curve changes slowly: half is forgotten in 17 steps
TIER_DECAY = 0.93
# How fast the level follows: while errors change sign, while they are all on one side.
PREFILL_AGILITY = 0.2, 0.6
TIER_AGILITY = 0.05, 0.3
GAVE_UP = 1.3  # what had not come when it was given up would have taken that much longer
_OUTLIER = 2.0, 4.0  # times the expected: at first, and once errors are all on one side
_PULL = 2e-3  # towards the shape of the prior, where observations do not tell
P90 = 1.28  # standard deviations


@light_value()
class PrefillCurve:
    """Seconds of prefill at one moment."""

    fixed_seconds: float
    token_seconds: float
    pair_seconds: float  # for each token and each token before it

    def seconds(self, start: int, end: int) -> float:
        """Time to prefill tokens [start, end). None for an empty range."""
        if end <= start:
            return 0.0
        pairs = (end * end - start * start) / 2
        return self.fixed_seconds + self.token_seconds * (end - start) + self.pair_seconds * pairs


@dataclass(frozen=True, slots=True)
class TierSpeed:
    """A tier's measured speed. `samples` 0: unknown. `spread`: its p90 over its mean."""

    latency_seconds: float
    bytes_per_second: float
    suspended: bool = False
    samples: int = 0
    spread: float = 1.0

    def __post_init__(self) -> None:
        if self.latency_seconds < 0 or self.bytes_per_second <= 0 or self.spread < 1:
            raise Misuse("a tier's latency is from 0, its bandwidth above 0, its spread from 1")


class _Fit:
    """Value = level * sum(coefficient * feature), learned step by step."""

    __slots__ = (
        *("_agile", "_decay", "_error", "_errors", "_matrix", "_mean", "_prior", "_vector"),
        *("coefficients", "level", "samples", "var"),
    )

    def __init__(
        self, prior: Sequence[float], *, decay: float, agility: tuple[float, float]
    ) -> None:
        self._decay, self._agile = decay, agility
        size = len(prior)
        self._prior = tuple(prior)
        self._matrix = [[0.0] * size for _ in prior]
        self._vector = [0.0] * size
        self._mean = 1.0  # of the observations over the prior
        self.coefficients = self._prior
        self.level, self.var, self.samples = 1.0, 0.0, 0
        self._error = self._errors = 0.0  # of late, with their signs and without

    def predict(self, features: Sequence[float]) -> float:
        return self.level * _dot(self.coefficients, features)

    def observe(self, features: Sequence[float], value: float) -> None:
        """Learn one value. Cost: O(1)."""
        expected = self.predict(features)
        if self.samples >= 2:
            most = _OUTLIER[self._signal() > 0.8]
            value = min(max(value, expected / most), expected * most)
        scale = expected if self.samples else value
        pace = max(self._agile[0], 1 / (self.samples + 1))
        self._mean += pace * (value / _dot(self._prior, features) - self._mean)
        self._learn_shape(
            [p * x / scale for p, x in zip(self._prior, features, strict=True)], value / scale
        )
        self.samples += 1
        ratio = value / _dot(self.coefficients, features)
        self.level += self._agility(value / expected - 1) * (ratio - self.level)
        surprise = min(abs(value / expected - 1), 1.0) if self.samples > 2 else 0.0
        self.var += max(0.1, 1 / self.samples) * (surprise * surprise - self.var)

    def _signal(self) -> float:
        """1 while errors are all on one side, 0 while they cancel (Trigg and Leach, 1967)."""
        return abs(self._error) / self._errors if self._errors else 0.0

    def _agility(self, error: float) -> float:
        """How fast to follow, by the errors before this one."""
        signal = self._signal()
        self._error += 0.3 * (error - self._error)
        self._errors += 0.3 * (abs(error) - self._errors)
        return min(max(signal, self._agile[0]), self._agile[1])

    def _learn_shape(self, row: Sequence[float], value: float) -> None:
        decay = self._decay
        for i, x in enumerate(row):
            self._vector[i] = decay * self._vector[i] + x * value
            pairs = zip(self._matrix[i], row, strict=True)
            self._matrix[i] = [decay * before + x * y for before, y in pairs]
        pull = [_PULL * self._matrix[i][i] for i in range(len(row))]
        weights = _not_negative(self._matrix, self._vector, pull, self._mean)
        self.coefficients = tuple(p * w for p, w in zip(self._prior, weights, strict=True))


def _dot(a: Sequence[float], b: Sequence[float]) -> float:
    total: float = sum(map(mul, a, b))
    return total


def _not_negative(
    matrix: Sequence[Sequence[float]], vector: Sequence[float], pull: Sequence[float], mean: float
) -> list[float]:
    """Minimise the squared error plus pull * (w - mean)^2, each w at least a trace of mean."""
    size, floor = len(vector), mean * 1e-3
    rows = [[*row, v + p * mean] for row, v, p in zip(matrix, vector, pull, strict=True)]
    for i, p in enumerate(pull):
        rows[i][i] += p
    weights = _solve(rows)
    fixed = {i for i, weight in enumerate(weights) if weight < floor}
    if not fixed:
        return weights
    while True:
        free = [i for i in range(size) if i not in fixed]
        rows = [
            [
                *(matrix[i][j] + pull[i] * (i == j) for j in free),
                vector[i] + pull[i] * mean - floor * sum(matrix[i][k] for k in fixed),
            ]
            for i in free
        ]
        solved = dict(zip(free, _solve(rows), strict=True))
        low = {i for i, weight in solved.items() if weight < floor}
        fixed |= low
        if not low:
            return [solved.get(i, floor) for i in range(size)]


def _solve(rows: list[list[float]]) -> list[float]:
    """Gauss elimination of a positive definite system; each row ends with its right side."""
    size = len(rows)
    for i in range(size):
        for j in range(i + 1, size):
            factor = rows[j][i] / rows[i][i]
            rows[j] = [x - factor * y for x, y in zip(rows[j], rows[i], strict=True)]
    found = [0.0] * size
    for i in reversed(range(size)):
        known = sum(rows[i][j] * found[j] for j in range(i + 1, size))
        found[i] = (rows[i][size] - known) / rows[i][i]
    return found


class PrefillSpeed:
    """Prefill time by position. Before any observation: `tokens_per_second`, rather too fast.

    Too fast a guess makes the first fetch impatient; too slow a one makes it late. Give a better
    one where there is one: the last of this engine, or what its kind of machine does.
    """

    __slots__ = ("_fit",)

    def __init__(self, *, tokens_per_second: float = 10_000.0) -> None:
        if not 0 < tokens_per_second < math.inf:
            raise Misuse("prefill speed is above 0 tokens a second")
        token = 1 / tokens_per_second
        self._fit = _Fit(
            (2 * token, token, token / 20_000), decay=PREFILL_DECAY, agility=PREFILL_AGILITY
        )

    @property
    def samples(self) -> int:
        return self._fit.samples

    def observe(self, start: int, tokens: int, seconds: float) -> None:
        """Learn from one prefill of `tokens` tokens after `start`. Ignores what cannot be."""
        if start >= 0 and tokens > 0 and 0 < seconds < math.inf:
            end = start + tokens
            self._fit.observe((1.0, tokens, (end * end - start * start) / 2), seconds)

    def curve(self) -> PrefillCurve:
        fixed, token, pair = (self._fit.level * c for c in self._fit.coefficients)
        return PrefillCurve(fixed, token, pair)

    def seconds(self, start: int, end: int) -> float:
        """Time to prefill tokens [start, end), now."""
        return self.curve().seconds(start, end)


class TierMeter:
    """A tier's latency and bandwidth. Observe the first block of a fetch and the whole of it."""

    __slots__ = ("_fit",)

    def __init__(self) -> None:
        self._fit = self._new()

    @staticmethod
    def _new() -> _Fit:
        return _Fit((1e-3, 1 / 500e6), decay=TIER_DECAY, agility=TIER_AGILITY)

    def observe(self, size_bytes: int, seconds: float) -> None:
        """Learn that `size_bytes` had arrived `seconds` after they were asked for."""
        if size_bytes > 0 and 0 < seconds < math.inf:
            self._fit.observe((1.0, size_bytes), seconds)

    def gave_up(self, size_bytes: int, seconds: float) -> None:
        """Learn that `size_bytes` had not arrived after `seconds`."""
        if self._fit.samples and self._fit.predict((1.0, size_bytes)) < GAVE_UP * seconds:
            self.observe(size_bytes, GAVE_UP * seconds)

    def forget(self) -> None:
        """Back to unknown, so that it is tried again: after a restart, a long silence."""
        self._fit = self._new()

    def speed(self, *, suspended: bool = False) -> TierSpeed:
        latency, byte = (self._fit.level * c for c in self._fit.coefficients)
        spread = 1 + P90 * math.sqrt(self._fit.var)
        return TierSpeed(latency, 1 / byte, suspended, self._fit.samples, spread)
