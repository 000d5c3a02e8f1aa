"""Laws of load or recompute (L9): fetching must pay, and a hang costs next to nothing."""

from __future__ import annotations

import math
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from scopekv.core.fetching import (
    Demand,
    FetchPlan,
    PrefillCurve,
    PrefillSpeed,
    Run,
    TierMeter,
    TierSpeed,
    decide,
    stalled,
)

HANG_SHARE, HANG_GRACE = 0.05, 0.005  # what is promised: 5 % and 5 ms

curves = st.builds(
    PrefillCurve,
    st.floats(0, 0.02),
    st.floats(5e-5, 1e-2),
    st.floats(0, 1e-6),
)
speeds = st.builds(
    TierSpeed,
    latency_seconds=st.floats(0, 0.1),
    bytes_per_second=st.floats(1e6, 1e10),
    suspended=st.sampled_from([False, False, False, True]),
    samples=st.integers(0, 3),
    spread=st.floats(1, 2),
)
runs = st.lists(st.builds(Run, speeds, st.integers(0, 100)), max_size=3)


@st.composite
def demands(draw: st.DrawFn) -> Demand:
    total = draw(st.integers(1, 6000))
    return Demand(
        total,
        draw(st.integers(0, total)),
        draw(st.sampled_from([16, 32, 128])),
        draw(st.sampled_from([737_280, 1_474_560])),
        draw(st.sampled_from([0.0, 0.0, 0.01, 0.5, 3.0])),
    )


def fetch_seconds(demand: Demand, tiers: list[Run], blocks: int) -> float:
    """Time to fetch leading blocks, tier after tier."""
    seconds = 0.0
    for run in tiers:
        count = min(run.blocks, blocks)
        if count > 0:
            transfer = count * demand.block_bytes / run.speed.bytes_per_second
            seconds += run.speed.latency_seconds + transfer
            blocks -= count
    return seconds


@given(demands(), runs, curves)
def test_no_plan_is_expected_to_be_slower_than_recomputing(
    demand: Demand, tiers: list[Run], curve: PrefillCurve
) -> None:
    plan = decide(demand, tiers, curve)
    assert plan == decide(demand, tiers, curve), "deterministic"
    assert 0 <= plan.expected_seconds <= plan.recompute_seconds
    assert plan.gain_seconds >= 0
    assert plan.deadline_seconds >= 0
    assert 0 <= plan.blocks <= min(demand.blocks_max, sum(run.blocks for run in tiers))
    assert (plan.blocks > 0) == (plan.reason in {"fetch_pays", "explores"})
    if plan.reason == "fetch_pays":
        assert plan.gain_seconds > 0.002
        assert demand.after(plan.blocks) < demand.total_tokens, "the last token is computed"


@given(demands(), runs, curves)
def test_a_suspended_tier_is_never_fetched_from(
    demand: Demand, tiers: list[Run], curve: PrefillCurve
) -> None:
    reach = 0
    for run in tiers:
        if run.speed.suspended and run.blocks:
            break
        reach += run.blocks
    assert decide(demand, tiers, curve).blocks <= reach


@given(demands(), runs, curves)
def test_the_plan_is_the_best_number_of_blocks(
    demand: Demand, tiers: list[Run], curve: PrefillCurve
) -> None:
    """Against all numbers, one by one."""
    plan = decide(demand, tiers, curve)
    if plan.reason != "fetch_pays":
        return
    usable = []
    for run in tiers:
        if run.blocks and (run.speed.suspended or not run.speed.samples):
            break
        usable.append(run)
    most = min(demand.blocks_max, sum(run.blocks for run in usable))
    best = min(
        max(demand.queue_seconds, fetch_seconds(demand, usable, blocks))
        + curve.seconds(demand.after(blocks), demand.total_tokens)
        for blocks in range(most + 1)
    )
    assert math.isclose(plan.expected_seconds, best, rel_tol=1e-9)


@given(
    demands(),
    st.lists(st.builds(Run, speeds, st.integers(0, 100)), min_size=1, max_size=3),
    curves,
    st.floats(1, 100),
)
def test_more_bandwidth_never_makes_the_first_token_later(
    demand: Demand, tiers: list[Run], curve: PrefillCurve, factor: float
) -> None:
    faster = [
        replace(run, speed=replace(run.speed, bytes_per_second=run.speed.bytes_per_second * factor))
        for run in tiers
    ]
    before, after = decide(demand, tiers, curve), decide(demand, faster, curve)
    assert after.expected_seconds <= before.expected_seconds * (1 + 1e-9)


def given_up(plan: FetchPlan, blocks_done: int, start: float) -> float:
    """When a fetch that hangs after `blocks_done` blocks is given up, to a microsecond."""
    low, high = start, plan.recompute_seconds * 2 + 1
    assert stalled(high, blocks_done, plan), "a hang is always given up"
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (low, middle) if stalled(middle, blocks_done, plan) else (middle, high)
    return high


@given(demands(), runs, curves, st.integers(0, 300))
def test_a_hang_at_any_block_costs_at_most_what_is_promised(
    demand: Demand, tiers: list[Run], curve: PrefillCurve, hangs_after: int
) -> None:
    plan = decide(demand, tiers, curve)
    if not plan.blocks:
        return
    done = hangs_after % plan.blocks
    ended = given_up(plan, done, 0.0)
    first = max(demand.queue_seconds, ended) + plan.left_seconds(done)
    none = demand.queue_seconds + curve.seconds(demand.cached_tokens, demand.total_tokens)
    assert first <= none * (1 + HANG_SHARE) + HANG_GRACE
    if done == 0:
        assert math.isclose(ended, plan.deadline_seconds, rel_tol=1e-3, abs_tol=1e-5)


@given(demands(), runs, curves, st.floats(0.7, 1.3))
def test_a_tier_that_keeps_its_speed_within_reason_is_not_given_up(
    demand: Demand, tiers: list[Run], curve: PrefillCurve, luck: float
) -> None:
    """Neither the first block nor a later one, as long as the fetch pays as it goes."""
    plan = decide(demand, tiers, curve)
    if plan.reason != "fetch_pays":
        return
    for done in range(plan.blocks):
        due = luck * fetch_seconds(demand, tiers, done + 1)
        if max(due, demand.queue_seconds) + plan.left_seconds(done) <= plan.recompute_seconds:
            assert not stalled(due, done, plan)


observations = st.lists(
    st.tuples(st.integers(0, 8000), st.integers(1, 2048), st.floats(1e-5, 100)), max_size=40
)


@given(observations, st.integers(0, 6000), st.integers(0, 6000), st.integers(0, 6000))
def test_prefill_time_is_positive_and_grows_with_the_range(
    seen: list[tuple[int, int, float]], a: int, b: int, c: int
) -> None:
    """Whatever was observed."""
    speed = PrefillSpeed()
    for start, tokens, seconds in seen:
        speed.observe(start, tokens, seconds)
    a, b, c = sorted((a, b, c))
    assert speed.seconds(a, a) == 0.0
    assert 0 <= speed.seconds(a, b) <= speed.seconds(a, c)
    if b > a:
        assert 0 < speed.seconds(a, b) < math.inf


@given(st.lists(st.tuples(st.integers(1, 10**9), st.floats(1e-6, 1e3), st.booleans()), max_size=40))
def test_a_measured_tier_has_a_speed_whatever_was_observed(
    seen: list[tuple[int, float, bool]],
) -> None:
    meter = TierMeter()
    for size, seconds, gave_up in seen:
        (meter.gave_up if gave_up else meter.observe)(size, seconds)
    speed = meter.speed()
    assert 0 < speed.latency_seconds < math.inf
    assert 0 < speed.bytes_per_second < math.inf
    assert 1 <= speed.spread <= 2.3
