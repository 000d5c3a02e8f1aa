"""Tallies add up whatever the order, and every count is one that the answer said."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scopekv.core.scopes import ScopeKind
from scopekv.core.speeds import PrefillCurve
from scopekv.core.tallies import COUNTS, WINDOWS, Answered, Medium, Tally, Window
from scopekv.errors import Misuse

CURVE = PrefillCurve(0.0, 0.001, 0.0)
tallies = st.lists(st.integers(0, 10**9), min_size=len(COUNTS), max_size=len(COUNTS)).map(
    lambda values: Tally(tuple(values))
)


@given(tallies, tallies, tallies)
def test_any_grouping_gives_the_same_total(one: Tally, two: Tally, three: Tally) -> None:
    assert (one + two) + three == one + (two + three) == (three + one) + two
    assert one + Tally() == one


def test_an_answer_is_counted_in_full() -> None:
    counted = Answered(
        input={ScopeKind.DOCUMENT: 1000, ScopeKind.USER: 500},
        cached={ScopeKind.DOCUMENT: 992, ScopeKind.USER: 0},
        fetched={Medium.DIRECTORY: 320},
        first_token_seconds=0.25,
        only_others=64,
        curve=CURVE,
    ).tally()
    expected = Tally.of(
        requests=1, hits=1, input_tokens=1500, cached_tokens=992, first_token_requests=1,
        first_token_ms=250, saved_ms=992, shared_tokens=992, shared_saved_ms=992,
        isolation_tokens=64, isolation_ms=64, input_document=1000, input_user=500,
        cached_document=992, from_directory=320, from_memory=672,
    )  # fmt: skip
    assert counted == expected
    assert counted.token_hit_rate == 992 / 1500


@given(
    cached=st.integers(0, 5000),
    fetched=st.none() | st.dictionaries(st.sampled_from(list(Medium)[1:4]), st.integers(0, 9000)),
)
def test_every_cached_token_came_from_one_medium(
    cached: int, fetched: dict[Medium, int] | None
) -> None:
    kinds = {ScopeKind.USER: cached}
    counted = Answered(kinds, kinds, fetched, None, 0, None).tally()
    assert sum(counted[f"from_{medium}"] for medium in Medium) == cached
    assert counted["saved_ms"] == 0, "what was not measured is not estimated"


def test_no_requests_have_no_rate() -> None:
    assert Tally().token_hit_rate is None
    with pytest.raises(Misuse, match="counts"):
        Tally((1, 2))


@pytest.mark.parametrize("window", list(Window))
@given(now=st.integers(10**9, 2 * 10**9))
def test_a_window_ends_with_the_step_of_now(window: Window, now: int) -> None:
    steps = WINDOWS[window]
    starts = steps.starts(now)
    assert len(starts) == steps.count
    assert starts[-1] <= now < starts[-1] + steps.seconds
    assert steps.start_of(now) == starts[-1]
