"""The worked example's arithmetic: strata, rates, percentiles, and what a budget allows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scopekv.core.article import (
    Costs,
    Mode,
    Plan,
    Reading,
    Shape,
    Warming,
    cache_tokens,
    figures,
    percentile,
    plan_within,
    private_hit,
    whole_plan,
)
from scopekv.errors import Misuse

ARTICLE = Shape(users=10, requests=10, document_tokens=10_000, question_tokens=500)


def cached_tokens(mode: Mode, user: int, request: int) -> int:
    """What an engine without block rounding finds."""
    reads_document = {
        Mode.NONE: True,
        Mode.PER_USER_SALT: request == 0,
        Mode.ONE_GROUP: request == 0 and user == 0,
        Mode.SCOPEKV: False,
    }
    return 0 if reads_document[mode] else ARTICLE.document_tokens


def readings(mode: Mode, shape: Shape, plan: Plan | None = None) -> list[Reading]:
    users = range(plan.users if plan and mode is Mode.PER_USER_SALT else shape.users)
    requests = range(plan.later + 1 if plan else shape.requests)
    return [
        Reading(u, r, shape.prompt_tokens, cached_tokens(mode, u, r), 100.0 * (u + 1) + r)
        for u in users
        for r in requests
    ]


def test_the_worked_example_gives_the_figures_of_the_brief() -> None:
    warm = {Mode.SCOPEKV: Warming(10_000, 30_200)}
    found = {m: figures(m, ARTICLE, readings(m, ARTICLE), (), warm.get(m)) for m in Mode}
    cached = {mode: result.cached_tokens for mode, result in found.items()}
    assert cached == {
        Mode.NONE: 0,
        Mode.PER_USER_SALT: 900_000,
        Mode.ONE_GROUP: 990_000,
        Mode.SCOPEKV: 1_000_000,
    }
    rates = {mode: round(result.token_hit_rate, 3) for mode, result in found.items()}
    assert rates == {
        Mode.NONE: 0,
        Mode.PER_USER_SALT: 0.857,
        Mode.ONE_GROUP: 0.943,
        Mode.SCOPEKV: 0.943,
    }


def test_the_three_rates_of_a_warmed_document_are_told_apart() -> None:
    mode = Mode.SCOPEKV
    result = figures(mode, ARTICLE, readings(mode, ARTICLE), (0, 0), Warming(10_000, 30_200))
    assert result.token_hit_rate_users == pytest.approx(1_000_000 / 1_050_000)
    assert result.token_hit_rate == pytest.approx(1_000_000 / 1_060_000)
    assert result.token_hit_rate_all_warming == pytest.approx(1_000_000 / 1_080_200)
    assert result.prefilled_tokens == 1_060_000 - 1_000_000
    assert result.warmed_tokens == 30_200


@pytest.mark.parametrize("mode", [m for m in Mode if m is not Mode.NONE])
@given(later=st.integers(1, 9), users=st.integers(2, 10))
def test_a_sample_of_like_requests_gives_the_counts_of_all(
    mode: Mode, later: int, users: int
) -> None:
    plan = Plan(later=later, users=users, none=2)
    whole = figures(mode, ARTICLE, readings(mode, ARTICLE), ())
    sample = figures(mode, ARTICLE, readings(mode, ARTICLE, plan), ())
    assert sample.cached_tokens == whole.cached_tokens
    assert sample.prefilled_tokens == whole.prefilled_tokens
    assert sample.requests_measured <= whole.requests_measured == sample.requests


def test_unlike_cached_tokens_of_like_requests_show() -> None:
    mixed = [*readings(Mode.SCOPEKV, ARTICLE), Reading(0, 1, 10_500, 32, 1.0)]
    assert figures(Mode.SCOPEKV, ARTICLE, mixed, ()).cached_tokens_spread == 10_000 - 32


def test_a_kind_of_request_that_was_not_measured_is_not_made_up() -> None:
    first_only = [r for r in readings(Mode.PER_USER_SALT, ARTICLE) if r.request == 0]
    with pytest.raises(Misuse, match="no later request of mode per_user_salt"):
        figures(Mode.PER_USER_SALT, ARTICLE, first_only, ())


def test_first_and_later_requests_have_percentiles_of_their_own() -> None:
    result = figures(Mode.PER_USER_SALT, ARTICLE, readings(Mode.PER_USER_SALT, ARTICLE), (3, 4))
    assert (result.first_ttft_ms_p50, result.first_ttft_ms_p99) == (500, 1000)
    assert (result.later_ttft_ms_p50, result.later_ttft_ms_p99) == (509, 1009)
    assert (result.private_hits_across_users, result.probes) == (7, 2)


def test_percentile_is_the_nearest_rank() -> None:
    assert percentile([3, 1, 2], 0.5) == 2
    assert percentile([1, 2, 3, 4], 0.5) == 2
    assert percentile(range(1, 201), 0.99) == 198
    assert percentile([7], 0.01) == 7
    with pytest.raises(Misuse):
        percentile([], 0.5)


def test_private_hits_start_beyond_the_documents_whole_blocks() -> None:
    shape = Shape(2, 2, 5000, 250)
    assert private_hit(shape, 32, 4992) == 0
    assert private_hit(shape, 32, 5216) == 224
    assert private_hit(shape, 32, 0) == 0


def test_a_budget_that_holds_everything_measures_everything() -> None:
    costs = Costs(whole_seconds=1.0, later_seconds=0.1, start_seconds=20)
    assert plan_within(ARTICLE, costs, 3600) == whole_plan(ARTICLE)


@given(
    whole=st.floats(0.1, 100), later=st.floats(0.01, 10), seconds=st.floats(0, 3600),
    users=st.integers(2, 20), requests=st.integers(2, 20),
)  # fmt: skip
def test_a_plan_fits_its_budget_or_is_the_smallest(
    whole: float, later: float, seconds: float, users: int, requests: int
) -> None:
    shape = Shape(users, requests, 5000, 250)
    costs = Costs(whole, later, 30)
    plan = plan_within(shape, costs, seconds)
    smallest = Plan(later=1, users=2, none=1)
    assert plan == smallest or plan.seconds(shape, costs) <= seconds
    assert smallest.later <= plan.later < requests
    assert smallest.users <= plan.users <= users
    assert smallest.none <= plan.none <= shape.count


def test_caches_hold_a_whole_mode_and_pins_take_half_at_most() -> None:
    stock, scoped = cache_tokens(ARTICLE)
    assert stock >= 10 * (10_000 + 10 * 500)
    assert scoped >= 3 * 10_000 + 100 * 500
    _, scoped_small = cache_tokens(Shape(2, 2, 5000, 64))
    assert scoped_small >= 2 * 3 * 5000
