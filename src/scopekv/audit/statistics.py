"""Two samples of times, compared: what an audit may conclude from them, and with what error.

Chosen in docs/decisions/0010-audit-statistics.md. Everywhere the question is whether `hits` are
smaller (sooner) than `misses`; AUC is the probability that a hit is, ties counting one half.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist
from typing import Any

from scopekv.errors import ConfigError, Misuse

EQUIVALENCE_BOUND = 0.55  # an AUC below this is taken for no use to an attacker
EQUIVALENCE_POWER = 0.98  # that two equal samples of the size below are found equivalent
_EXACT_PAIRS_MAX = 10_000
_NORMAL = NormalDist()
_Z95 = _NORMAL.inv_cdf(0.975)  # of a two-sided 95 % interval


def faster_p(hits: Sequence[float], misses: Sequence[float]) -> float:
    """The one-sided two-sample Kolmogorov-Smirnov p-value that hits are sooner by chance alone.

    Exact for equal and for small sizes, else asymptotic with scipy's correction (where its exact
    method gives up). Conservative where values tie.
    """
    exact = len(hits) == len(misses) or len(hits) * len(misses) <= _EXACT_PAIRS_MAX
    method = "exact" if exact else "asymp"
    # "greater": the hits' distribution function lies above, so the hits' values are smaller.
    return float(_scipy_stats().ks_2samp(hits, misses, alternative="greater", method=method).pvalue)


def require_scipy() -> None:
    """Raise `ConfigError` where scipy is not installed."""
    _scipy_stats()


def _scipy_stats() -> Any:
    try:
        # Half a second, which no other command should wait for.
        from scipy import stats
    except ImportError as error:
        raise ConfigError("audits of time need scipy: pip install 'scopekv[audit]'") from error
    return stats


@dataclass(frozen=True, slots=True)
class Area:
    """An AUC with its two-sided 95 % confidence interval."""

    value: float
    lower95: float
    upper95: float

    def within(self, bound: float) -> bool:
        """Whether the whole interval lies nearer to 1/2 than `bound`, on both sides.

        A hit that were slower than a miss would tell as much as one that is faster.
        """
        return 1.0 - bound < self.lower95 and self.upper95 < bound


def area(hits: Sequence[float], misses: Sequence[float]) -> Area:
    """AUC by Mann-Whitney, interval by DeLong, DeLong & Clarke-Pearson (Biometrics 1988).

    The interval has no width where the samples do not overlap; with one value it is [0, 1].
    Raises `Misuse` for an empty sample.
    """
    if not hits or not misses:
        raise Misuse("an AUC needs a value in each of its two samples")
    ordered_hits, ordered_misses = sorted(hits), sorted(misses)
    of_hits = [1.0 - _below(ordered_misses, value) for value in hits]
    of_misses = [_below(ordered_hits, value) for value in misses]
    value = sum(of_hits) / len(of_hits)
    if len(hits) < 2 or len(misses) < 2:
        return Area(value, 0.0, 1.0)
    spread = _Z95 * math.sqrt(
        _variance(of_hits) / len(of_hits) + _variance(of_misses) / len(of_misses)
    )
    return Area(value, max(0.0, value - spread), min(1.0, value + spread))


def _below(ordered: Sequence[float], value: float) -> float:
    """The part of `ordered` that is under `value`, ties counting one half."""
    return (bisect_left(ordered, value) + bisect_right(ordered, value)) / (2 * len(ordered))


def _variance(values: Sequence[float]) -> float:
    mean = sum(values) / len(values)
    return sum((value - mean) ** 2 for value in values) / (len(values) - 1)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values in the order given: reject those at most alpha (Holm 1979).

    The chance of any false rejection stays at most alpha, however the tests depend on each other.
    """
    adjusted = [1.0] * len(p_values)
    highest = 0.0
    for rank, at in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[at]))
        adjusted[at] = highest
    return adjusted


@dataclass(frozen=True, slots=True)
class Look:
    """One look at growing samples. `weight`: the part of alpha that is spent on it."""

    n: int
    p: float
    weight: float


def spending(sizes: Sequence[int]) -> list[float]:
    """The part of alpha spent at each look: as much as the samples it adds (they sum to 1).

    Linear spending, the power family with exponent 1 of Kim & DeMets (Biometrika 1987).
    """
    if not sizes or sizes[0] < 1 or any(a >= b for a, b in pairwise(sizes)):
        raise Misuse("looks are at growing sizes, from 1")
    return [
        (size - before) / sizes[-1] for before, size in zip((0, *sizes[:-1]), sizes, strict=True)
    ]


def sequential_p(looks: Sequence[Look]) -> float:
    """One p-value for all looks taken so far; 1 without any.

    The weighted Bonferroni bound: whatever the looks share, it is at most t with chance at most t.
    """
    return min([1.0, *(look.p / look.weight for look in looks)])


def equivalence_size(bound: float = EQUIVALENCE_BOUND, power: float = EQUIVALENCE_POWER) -> int:
    """How many values each sample needs, so that equal ones are found `within` the bound.

    From the variance 1/(6n) of an AUC of equal distributions.
    """
    if not 0.5 < bound < 1.0 or not 0.0 < power < 1.0:
        raise Misuse("the bound of an AUC lies between 0.5 and 1, a power between 0 and 1")
    z_power = _NORMAL.inv_cdf((1 + power) / 2)  # both sides must hold
    return math.ceil((_Z95 + z_power) ** 2 / (6 * (bound - 0.5) ** 2))


def detectable_auc(n: int, alpha: float, power: float = 0.8) -> float:
    """The smallest AUC that `faster_p` finds at level `alpha` with at least this `power`.

    For two normal distributions of one width, shifted; n values each; asymptotic. 1 if none is.
    """
    if n < 1 or not 0.0 < alpha < 1.0:
        raise Misuse("a detectable effect needs a size from 1 and an alpha between 0 and 1")
    critical = math.sqrt(math.log(1 / alpha) / n)  # p is about exp(-n d^2)
    low, high = 0.0, 16.0
    for _ in range(60):
        shift = (low + high) / 2
        if _power(shift, n, critical) < power:
            low = shift
        else:
            high = shift
    return _NORMAL.cdf(high / math.sqrt(2)) if _power(16.0, n, critical) >= power else 1.0


def _power(shift: float, n: int, critical: float) -> float:
    """That the distance passes `critical` halfway between the means, where it is widest."""
    part = _NORMAL.cdf(shift / 2)
    spread = math.sqrt(max(2 * part * (1 - part) / n, 1e-18))
    return _NORMAL.cdf((2 * part - 1 - critical) / spread)
