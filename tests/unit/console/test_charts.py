"""Charts stay inside their box, and say what the numbers say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scopekv.console.charts import BOTTOM, HEIGHT, LEFT, TOP, rate_chart, short, stacked_chart

STARTS = range(0, 60 * 900, 900)
counts = st.lists(st.integers(0, 10**12), min_size=60, max_size=60)


@given(counts, counts)
def test_bars_stay_inside_and_are_as_high_as_their_count(one: list[int], two: list[int]) -> None:
    chart = stacked_chart(STARTS, {"one": one, "two": two}, 900, lambda *_: "")
    top = max(1, *(a + b for a, b in zip(one, two, strict=True)))
    full = HEIGHT - TOP - BOTTOM
    for bar in chart.bars:
        assert TOP - 0.1 <= bar.y <= bar.y + bar.height <= HEIGHT - BOTTOM + 0.1
        assert bar.x >= LEFT
        assert bar.height <= full + 0.1
    assert chart.empty == (sum(one) + sum(two) == 0)
    tallest = max((bar.height for bar in chart.bars), default=0)
    assert chart.empty or top <= 4 or tallest >= full / 4 or len(chart.bars) > 1


@given(st.lists(st.none() | st.floats(0, 1), min_size=60, max_size=60))
def test_a_gap_in_the_rates_is_a_gap_in_the_line(rates: list[float | None]) -> None:
    chart = rate_chart(STARTS, rates, 900)
    ((_, path),) = chart.lines
    runs = sum(
        rate is not None and (place == 0 or rates[place - 1] is None)
        for place, rate in enumerate(rates)
    )
    assert path.count("M") == runs
    assert path.count("M") + path.count("L") == sum(rate is not None for rate in rates)
    assert chart.empty == (runs == 0)


@pytest.mark.parametrize(
    ("value", "written"),
    [(0, "0"), (950, "950"), (1000, "1k"), (1250, "1.2k"), (35e6, "35M"), (2e9, "2G")],
)
def test_counts_are_written_short(value: float, written: str) -> None:
    assert short(value) == written
