"""Statistics of audits, against scipy, against brute force, and by simulation."""

from __future__ import annotations

import importlib
import random
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scopekv.audit.statistics import (
    EQUIVALENCE_BOUND,
    Area,
    Look,
    area,
    detectable_auc,
    equivalence_size,
    faster_p,
    holm,
    sequential_p,
    spending,
)
from scopekv.errors import Misuse

samples = st.lists(st.integers(0, 20).map(float), min_size=2, max_size=30)
p_values = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=12)


def scipy_stats() -> Any:
    """Imported by whoever runs these tests, not by all who collect them."""
    return importlib.import_module("scipy.stats")


def normal(dice: random.Random, n: int, mean: float = 0.0) -> list[float]:
    return [dice.gauss(mean, 1.0) for _ in range(n)]


def test_only_sooner_hits_count() -> None:
    low, high = [float(n) for n in range(50)], [float(n) for n in range(100, 150)]
    assert faster_p(low, high) < 1e-20
    assert faster_p(high, low) == 1.0


def test_sixteen_separate_samples_pass_the_limit_of_controls() -> None:
    assert faster_p([1.0] * 16, [2.0] * 16) < 1e-8


@pytest.mark.parametrize("sizes", [(7, 6), (99, 101), (97, 103), (345, 1225), (1225, 1225)])
@pytest.mark.parametrize("shift", [0.0, 0.5, 20.0])
def test_unequal_sizes_give_a_p_value_too(sizes: tuple[int, int], shift: float) -> None:
    """Warnings are errors here: none of scipy's methods may give up."""
    stats = scipy_stats()
    dice = random.Random(6)
    hits, misses = normal(dice, sizes[0]), normal(dice, sizes[1], shift)
    p = faster_p(hits, misses)
    rough = stats.ks_2samp(hits, misses, alternative="greater", method="asymp").pvalue
    assert p == pytest.approx(rough, abs=0.12)


@given(samples, samples)
def test_auc_is_the_share_of_pairs_won(hits: list[float], misses: list[float]) -> None:
    stats = scipy_stats()
    won = sum((hit < miss) + (hit == miss) / 2 for hit, miss in product(hits, misses))
    found = area(hits, misses)
    assert found.value == pytest.approx(won / (len(hits) * len(misses)))
    statistic = stats.mannwhitneyu(misses, hits).statistic
    assert found.value == pytest.approx(statistic / (len(hits) * len(misses)))


@given(samples, samples)
def test_auc_is_symmetric(hits: list[float], misses: list[float]) -> None:
    there, back = area(hits, misses), area(misses, hits)
    assert there.value == pytest.approx(1 - back.value)
    assert there.lower95 == pytest.approx(1 - back.upper95)
    assert 0 <= there.lower95 <= there.value + 1e-12
    assert there.value - 1e-12 <= there.upper95 <= 1


@given(samples, samples, st.floats(0.5, 4.0))
def test_auc_depends_on_order_alone(hits: list[float], misses: list[float], power: float) -> None:
    stretched = area([hit**power for hit in hits], [miss**power for miss in misses])
    assert stretched.value == pytest.approx(area(hits, misses).value)


def test_the_interval_covers_the_true_auc() -> None:
    stats = scipy_stats()
    dice = random.Random(1)
    truth = stats.norm.cdf(0.5 / 2**0.5)
    inside = 0
    for _ in range(500):
        found = area(normal(dice, 60), normal(dice, 80, 0.5))
        inside += found.lower95 <= truth <= found.upper95
    assert 0.92 <= inside / 500 <= 0.98


def test_one_value_says_nothing_and_none_is_misuse() -> None:
    assert area([1.0], [2.0, 3.0]) == Area(1.0, 0.0, 1.0)
    with pytest.raises(Misuse):
        area([], [1.0])


def _holm_rejects(p_values: list[float], alpha: float) -> set[int]:
    """The procedure as its author wrote it."""
    rejected: set[int] = set()
    for step, at in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        if p_values[at] * (len(p_values) - step) > alpha:
            break
        rejected.add(at)
    return rejected


@given(p_values, st.sampled_from([0.001, 0.01, 0.05, 0.3]))
def test_holm_rejects_what_its_steps_reject(values: list[float], alpha: float) -> None:
    adjusted = holm(values)
    assert {at for at, p in enumerate(adjusted) if p <= alpha} == _holm_rejects(values, alpha)


@given(p_values)
def test_holm_keeps_the_order_and_only_raises(values: list[float]) -> None:
    adjusted = holm(values)
    ranked = [adjusted[at] for at in sorted(range(len(values)), key=values.__getitem__)]
    assert ranked == sorted(ranked)
    assert all(p <= after <= 1.0 for p, after in zip(values, adjusted, strict=True))
    assert max(adjusted) <= min(1.0, len(values) * max(values))


def test_alpha_is_spent_as_samples_come_and_once() -> None:
    assert spending([50, 100, 250]) == pytest.approx([0.2, 0.2, 0.6])
    assert sequential_p([]) == 1.0
    assert sequential_p([Look(50, 0.5, 0.2), Look(100, 0.01, 0.2)]) == pytest.approx(0.05)
    for sizes in ([], [0], [50, 50], [100, 50]):
        with pytest.raises(Misuse):
            spending(sizes)


def _sequence(dice: random.Random, sizes: list[int], shift: float) -> float:
    """The p-value of one audit's looks at growing samples."""
    hits, misses = normal(dice, sizes[-1]), normal(dice, sizes[-1], shift)
    return sequential_p(
        [
            Look(size, faster_p(hits[:size], misses[:size]), weight)
            for size, weight in zip(sizes, spending(sizes), strict=True)
        ]
    )


def test_looking_often_raises_no_more_false_alarms_than_alpha() -> None:
    dice = random.Random(2)
    alpha, runs = 0.1, 600
    alarms = sum(_sequence(dice, [20, 40, 80], 0.0) <= alpha for _ in range(runs))
    assert alarms / runs <= alpha + 2 * (alpha * (1 - alpha) / runs) ** 0.5


@pytest.mark.parametrize(("n", "alpha"), [(100, 0.01), (250, 0.0002), (1000, 0.0002)])
def test_the_detectable_effect_is_detected(n: int, alpha: float) -> None:
    stats = scipy_stats()
    auc = detectable_auc(n, alpha)
    shift = float(stats.norm.ppf(auc)) * 2**0.5
    dice = random.Random(3)
    found = sum(faster_p(normal(dice, n), normal(dice, n, shift)) <= alpha for _ in range(100))
    assert found >= 72  # 80, less two standard deviations


def test_the_detectable_effect_shrinks_with_samples() -> None:
    found = [detectable_auc(n, 0.001) for n in (2, 10, 50, 250, 1000, 5000)]
    assert found[0] == 1.0
    assert found == sorted(found, reverse=True)
    assert found[-1] < EQUIVALENCE_BOUND


def test_equal_samples_of_the_equivalence_size_are_found_equivalent() -> None:
    size = equivalence_size()
    assert 1000 <= size <= 1300
    dice = random.Random(4)
    shown = [area(normal(dice, size), normal(dice, size)) for _ in range(60)]
    assert sum(one.within(EQUIVALENCE_BOUND) for one in shown) >= 56


def test_an_effect_at_the_bound_is_not_called_equivalent() -> None:
    stats = scipy_stats()
    size = equivalence_size()
    dice = random.Random(5)
    shift = float(stats.norm.ppf(EQUIVALENCE_BOUND)) * 2**0.5
    pairs = [(normal(dice, size), normal(dice, size, shift)) for _ in range(60)]
    either = [(area(a, b), area(b, a)) for a, b in pairs]
    assert sum(one.within(EQUIVALENCE_BOUND) for one, _ in either) <= 5  # 2.5 % of 60
    assert sum(other.within(EQUIVALENCE_BOUND) for _, other in either) <= 5
