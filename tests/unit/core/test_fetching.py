"""Load or recompute: estimators, decisions and their reasons, one by one."""

from __future__ import annotations

import random

import pytest

from scopekv.core.fetching import (
    Demand,
    PrefillCurve,
    PrefillSpeed,
    Run,
    TierMeter,
    TierSpeed,
    decide,
    stalled,
)
from scopekv.core.reasons import FetchReason
from scopekv.errors import Misuse

CURVE = PrefillCurve(0.0, 0.001, 0.0)  # 1,000 tokens a second
BLOCK = 1_474_560
DEMAND = Demand(3200, 0, 32, BLOCK)
FAST = TierSpeed(0.001, 500e6, samples=9)


def reason(demand: Demand, *tiers: Run) -> FetchReason:
    return decide(demand, tiers, CURVE).reason


def test_a_fast_tier_gives_all_it_has_but_the_last_token() -> None:
    plan = decide(DEMAND, [Run(FAST, 100)], CURVE)
    assert plan.reason is FetchReason.FETCH_PAYS
    assert plan.blocks == 99
    assert plan.recompute_seconds == pytest.approx(3.2)
    assert plan.expected_seconds == pytest.approx(0.032 + 0.001 + 99 * BLOCK / 500e6)


def test_each_obstacle_has_its_reason() -> None:
    unknown = TierSpeed(0.001, 500e6)
    assert reason(DEMAND) is FetchReason.NOTHING_THERE
    assert reason(DEMAND, Run(FAST, 0)) is FetchReason.NOTHING_THERE
    assert reason(Demand(32, 0, 32, BLOCK), Run(FAST, 1)) is FetchReason.NOTHING_THERE
    slow = TierSpeed(0.0, 20e6, samples=9)
    assert reason(DEMAND, Run(slow, 50)) is FetchReason.RECOMPUTE_FASTER
    assert reason(DEMAND, Run(FAST, 1)) is FetchReason.TOO_LITTLE
    far = TierSpeed(0.2, 5e9, samples=9)
    assert reason(DEMAND, Run(far, 100)) is FetchReason.TOO_FAR
    suspended = TierSpeed(0.001, 500e6, suspended=True, samples=9)
    assert reason(DEMAND, Run(suspended, 100)) is FetchReason.TIER_SUSPENDED
    assert reason(DEMAND, Run(unknown, 100)) is FetchReason.EXPLORES
    assert reason(Demand(33, 0, 32, BLOCK), Run(unknown, 1)) is FetchReason.UNKNOWN_SPEED


def test_a_queue_makes_a_slow_tier_worth_it_as_far_as_it_is_free() -> None:
    slow = TierSpeed(0.0, 20e6, samples=9)
    plan = decide(Demand(3200, 0, 32, BLOCK, 1.0), [Run(slow, 50)], CURVE)
    assert plan.reason is FetchReason.FETCH_PAYS
    assert plan.blocks == int(1.0 / (BLOCK / 20e6))


def test_a_slow_second_tier_is_left_alone() -> None:
    slow = TierSpeed(0.0, 20e6, samples=9)
    assert decide(DEMAND, [Run(FAST, 40), Run(slow, 40)], CURVE).blocks == 40
    assert decide(DEMAND, [Run(FAST, 40), Run(FAST, 40)], CURVE).blocks == 80
    unknown = TierSpeed(0.001, 500e6)
    assert decide(DEMAND, [Run(FAST, 40), Run(unknown, 40)], CURVE).blocks == 40


def test_a_hang_is_given_up_at_the_deadline() -> None:
    plan = decide(DEMAND, [Run(FAST, 100)], CURVE)
    assert plan.deadline_seconds == pytest.approx(0.04 * 3.2)
    assert not stalled(0.12, 0, plan)
    assert stalled(0.13, 0, plan)


def test_blocks_that_have_come_buy_patience() -> None:
    plan = decide(DEMAND, [Run(FAST, 100)], CURVE)
    assert not stalled(0.13, 30, plan)
    assert stalled(1.2, 30, plan)
    assert not stalled(100.0, plan.blocks, plan), "it is complete"


def test_a_fetch_that_turned_slow_is_given_up_before_it_costs() -> None:
    plan = decide(DEMAND, [Run(FAST, 100)], CURVE)
    assert not stalled(0.5, 20, plan), "25 ms a block: late, and still cheaper than 32 ms"
    assert stalled(0.5, 10, plan), "50 ms a block"


def test_while_the_queue_lasts_a_fetch_is_free() -> None:
    plan = decide(Demand(3200, 0, 32, BLOCK, 2.0), [Run(FAST, 100)], CURVE)
    assert not stalled(2.0, 0, plan)
    assert stalled(2.3, 0, plan)


def test_exploring_ends_within_the_hang_budget_or_goes_on_while_it_pays() -> None:
    plan = decide(DEMAND, [Run(TierSpeed(0.001, 500e6), 100)], CURVE)
    assert plan.blocks == 99
    assert plan.fetch_seconds == 0.0
    assert stalled(0.13, 0, plan)
    assert not stalled(0.13, 20, plan)
    assert stalled(1.0, 8, plan)


def prefill_truth(start: int, tokens: int) -> float:
    end = start + tokens
    return 0.004 + tokens * 1e-3 + (end * end - start * start) / 2 * 1.2e-7


def learn(speed: PrefillSpeed, dice: random.Random, steps: int, factor: float = 1.0) -> None:
    for _ in range(steps):
        start, tokens = dice.randrange(0, 8000, 512), dice.choice([64, 256, 512])
        noise = dice.lognormvariate(0, 0.08)
        speed.observe(start, tokens, factor * noise * prefill_truth(start, tokens))


@pytest.mark.parametrize("seed", range(4))
def test_prefill_speed_is_learned_by_position(seed: int) -> None:
    speed = PrefillSpeed()
    learn(speed, random.Random(seed), 80)
    for start, tokens in ((0, 512), (4096, 512), (7680, 512), (0, 6000)):
        assert speed.seconds(start, start + tokens) == pytest.approx(
            prefill_truth(start, tokens), rel=0.15
        )
    assert speed.samples == 80


@pytest.mark.parametrize("seed", range(4))
def test_a_change_of_prefill_speed_is_followed_in_a_few_steps(seed: int) -> None:
    dice, speed = random.Random(seed), PrefillSpeed()
    learn(speed, dice, 60)
    learn(speed, dice, 8, factor=3.0)
    assert speed.seconds(0, 3000) == pytest.approx(3 * prefill_truth(0, 3000), rel=0.25)


def test_one_outlier_moves_the_prefill_speed_little() -> None:
    dice, speed = random.Random(1), PrefillSpeed()
    learn(speed, dice, 60)
    before = speed.seconds(0, 3000)
    speed.observe(0, 512, 60.0)
    assert speed.seconds(0, 3000) < 2.8 * before
    learn(speed, dice, 10)
    assert speed.seconds(0, 3000) == pytest.approx(before, rel=0.2)


def test_impossible_observations_are_ignored() -> None:
    speed, meter = PrefillSpeed(), TierMeter()
    for start, tokens, seconds in ((-1, 5, 1.0), (0, 0, 1.0), (0, 5, 0.0), (0, 5, float("nan"))):
        speed.observe(start, tokens, seconds)
    meter.observe(0, 1.0)
    meter.observe(5, float("inf"))
    assert speed.samples == meter.speed().samples == 0


@pytest.mark.parametrize(("latency", "bandwidth"), [(50e-6, 5e9), (1e-3, 500e6), (0.05, 2e9)])
def test_latency_and_bandwidth_are_told_apart(latency: float, bandwidth: float) -> None:
    dice, meter = random.Random(3), TierMeter()
    for _ in range(40):
        noise = dice.lognormvariate(0, 0.1)
        for blocks in (1, dice.randint(2, 150)):
            meter.observe(blocks * BLOCK, noise * (latency + blocks * BLOCK / bandwidth))
    speed = meter.speed()
    for blocks in (1, 10, 150):
        learned = speed.latency_seconds + blocks * BLOCK / speed.bytes_per_second
        assert learned == pytest.approx(latency + blocks * BLOCK / bandwidth, rel=0.25)
    assert 1.02 < speed.spread < 1.6


def test_what_was_given_up_makes_the_tier_look_slower_and_forgetting_unknown() -> None:
    meter = TierMeter()
    meter.gave_up(BLOCK, 1.0)
    assert meter.speed().samples == 0, "nothing is known of a tier that never answered"
    for _ in range(5):
        meter.observe(BLOCK, 0.004)
    before = meter.speed()
    meter.gave_up(BLOCK, 0.1)
    after = meter.speed(suspended=True)
    assert after.suspended
    assert after.latency_seconds > before.latency_seconds
    meter.gave_up(BLOCK, 1e-6)
    assert meter.speed().samples == after.samples
    meter.forget()
    assert meter.speed().samples == 0


def test_wrong_values_are_refused() -> None:
    for wrong in ((10, 11, 32, 1), (0, 0, 32, 1), (10, 0, 0, 1), (10, 0, 32, 0)):
        with pytest.raises(Misuse):
            Demand(*wrong)
    with pytest.raises(Misuse):
        Demand(10, 0, 32, 1, float("inf"))
    with pytest.raises(Misuse):
        TierSpeed(-1.0, 1.0)
    with pytest.raises(Misuse):
        TierSpeed(0.0, 0.0)
    with pytest.raises(Misuse):
        PrefillSpeed(tokens_per_second=0)
