"""Which instance gets a request, what is counted while it is there, what prefixes are called."""

from __future__ import annotations

import pytest

from scopekv.core.fetching import Run
from scopekv.core.reasons import RouteReason
from scopekv.core.routing import CachedThere, Candidate, choose
from scopekv.core.speeds import PrefillCurve, TierSpeed
from scopekv.errors import Misuse

CURVE = PrefillCurve(0.0, 0.001, 0.0)  # 1,000 tokens a second


def candidate(
    name: str,
    *,
    queue: float = 0.0,
    flight: int = 0,
    cached: int | None = 0,
    crowd: int = 0,
    curve: PrefillCurve = CURVE,
    runs: tuple[Run, ...] = (),
) -> Candidate:
    there = None if cached is None else CachedThere(cached, runs, 32, 1000)
    return Candidate(name, queue, flight, curve, there, crowd)


def chosen(*candidates: Candidate, total: int = 1000, tie: float = 0.0) -> tuple[str, RouteReason]:
    choice = choose(candidates, total, tie)
    return choice.name, choice.reason


def test_the_only_candidate_is_taken_whatever_it_costs() -> None:
    assert chosen(candidate("a", queue=99.0)) == ("a", RouteReason.ONLY_CANDIDATE)


def test_a_prefix_attracts_until_the_queue_there_costs_more_than_computing_it() -> None:
    other = candidate("b")
    assert chosen(candidate("a", cached=800, queue=0.7), other) == ("a", RouteReason.PREFIX_HERE)
    assert chosen(candidate("a", cached=800, queue=0.9), other) == ("b", RouteReason.SHORTER_QUEUE)


def test_the_worked_choice_of_the_documentation() -> None:
    """docs/routing.md: 4,000 tokens; a has 3,500 of them and 2 s of queue, b has none and none."""
    curve = PrefillCurve(0.010, 0.001, 0.0)
    a = candidate("a", cached=3500, queue=2.0, flight=5, curve=curve)
    b = candidate("b", queue=0.0, curve=curve)
    choice = choose([a, b], 4000, 0.0)
    assert (choice.name, choice.reason) == ("a", RouteReason.PREFIX_HERE)
    assert choice.expected_seconds == pytest.approx(2.51)
    assert choice.prefill_seconds == pytest.approx(0.51)
    assert chosen(candidate("a", cached=3500, queue=4.0, curve=curve), b, total=4000) == (
        "b",
        RouteReason.SHORTER_QUEUE,
    )


def test_equals_are_told_apart_by_requests_in_flight_and_then_by_dice() -> None:
    assert chosen(candidate("a", flight=2), candidate("b", flight=1)) == (
        "b",
        RouteReason.SHORTER_QUEUE,
    )
    pair = (candidate("a"), candidate("b"))
    assert {chosen(*pair, tie=tie) for tie in (0.0, 0.49)} == {("a", RouteReason.TIE)}
    assert {chosen(*pair, tie=tie) for tie in (0.5, 0.999)} == {("b", RouteReason.TIE)}


def test_a_difference_that_no_estimate_can_tell_is_none() -> None:
    a, b = candidate("a", queue=0.001, flight=0), candidate("b", queue=0.0, flight=3)
    assert chosen(a, b)[0] == "a"


def test_where_the_view_is_unsure_only_load_counts() -> None:
    a, b = candidate("a", cached=None, queue=0.2), candidate("b", cached=None, queue=0.1)
    assert chosen(a, b) == ("b", RouteReason.LOAD_ONLY_UNSURE)


def test_a_faster_instance_wins_an_equal_race() -> None:
    slow = PrefillCurve(0.0, 0.003, 0.0)
    found = chosen(candidate("a", curve=slow), candidate("b"))
    assert found == ("b", RouteReason.FASTER_PREFILL)


def test_what_a_tier_holds_counts_as_far_as_fetching_it_pays() -> None:
    quick = Run(TierSpeed(0.001, 1e9, samples=9), 31)
    dead = Run(TierSpeed(9.0, 1e3, samples=9), 31)
    untried = Run(TierSpeed(0.001, 1e9), 31)
    choice = choose([candidate("a", runs=(quick,)), candidate("b")], 1000, 0.9)
    assert (choice.name, choice.reason) == ("a", RouteReason.PREFIX_IN_TIER)
    assert choice.expected_seconds < 0.02
    for useless in (dead, untried):
        choice = choose([candidate("a", runs=(useless,)), candidate("b")], 1000, 0.9)
        assert (choice.name, choice.reason) == ("b", RouteReason.TIE)


def test_what_comes_to_memory_meanwhile_is_not_fetched_as_well() -> None:
    near, far = TierSpeed(0.001, 1e9, samples=9), TierSpeed(0.1, 1e8, samples=9)
    there = CachedThere(64, (Run(near, 2), Run(far, 5)), 32, 1000)
    assert there.with_coming(10) == there
    assert there.with_coming(170) == CachedThere(170, (Run(far, 4),), 32, 1000)
    assert there.with_coming(999).runs == ()


def test_the_worked_choice_with_a_tier_of_the_documentation() -> None:
    """docs/routing.md: the same prompt; a has 3,500 tokens on its disk, b has 1,000 in memory."""
    curve = PrefillCurve(0.010, 0.001, 0.0)
    disk = Run(TierSpeed(0.002, 1e9, samples=9, spread=1.2), 109)
    a = Candidate("a", 0.0, 0, curve, CachedThere(0, (disk,), 32, 1 << 20))
    b = candidate("b", cached=1000, curve=curve)
    choice = choose([a, b], 4000, 0.0)
    assert (choice.name, choice.reason) == ("a", RouteReason.PREFIX_IN_TIER)
    assert choice.expected_seconds == pytest.approx(0.638, abs=0.001)
    assert choice.cached_tokens == 109 * 32
    assert choose([b], 4000, 0.0).expected_seconds == pytest.approx(3.01)


def test_a_hot_prefix_leaves_an_instance_that_holds_its_share() -> None:
    warm = candidate("a", cached=900, crowd=30, queue=0.1, flight=30)
    cold = candidate("b", crowd=18, flight=18)
    assert chosen(warm, cold) == ("b", RouteReason.HOT_PREFIX)
    few = candidate("a", cached=900, crowd=7, queue=0.1, flight=7)
    assert chosen(few, candidate("b")) == ("a", RouteReason.PREFIX_HERE)


def test_what_is_cached_whole_still_takes_its_last_token() -> None:
    choice = choose([candidate("a", cached=1000), candidate("b")], 1000, 0.0)
    assert choice.cached_tokens == 999
    assert choice.prefill_seconds == pytest.approx(0.001)


def test_nobody_and_no_dice_are_refused() -> None:
    with pytest.raises(Misuse):
        choose([], 1, 0.0)
    with pytest.raises(Misuse):
        choose([candidate("a")], 1, 1.0)
