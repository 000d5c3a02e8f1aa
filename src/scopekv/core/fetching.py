"""Load or recompute (L9): how many leading blocks to fetch, and when to give a fetch up.

    no tier   queue + prefill(all)
    fetch n   max(queue, fetch(n)) + prefill(what is left after n blocks)

A fetch runs while the engine does the work queued before, so up to there it is free. A fetch may
hang at any moment: it is given up once stopping then costs HANG_FRACTION of the time with no tier.
Blocks that have arrived by then are kept, so a fetch that gets on earns its own patience.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from scopekv.core.reasons import FetchReason
from scopekv.core.speeds import P90, PrefillCurve, PrefillSpeed, TierMeter, TierSpeed
from scopekv.core.values import light_value
from scopekv.errors import Misuse

__all__ = [
    "Demand",
    "FetchPlan",
    "PrefillCurve",
    "PrefillSpeed",
    "Run",
    "TierMeter",
    "TierSpeed",
    "decide",
    "stalled",
]

HANG_FRACTION = 0.04  # below the 5 % that are promised: the prefill time is an estimate
GAIN_FRACTION = 0.05
GAIN_SECONDS = 0.002
_LATE = 1.5  # times the expected time; and dearer than recomputing by
_DEARER = 1.1


@light_value()
class Demand:
    """What a request needs. Tokens [0, cached_tokens) are in the engine or in host memory."""

    total_tokens: int
    cached_tokens: int
    block_tokens: int
    block_bytes: int
    queue_seconds: float = 0.0  # what the engine does before this request anyway

    def __post_init__(self) -> None:
        if not 0 <= self.cached_tokens <= self.total_tokens or self.total_tokens < 1:
            raise Misuse("a request has tokens, and no more cached than it has")
        if self.block_tokens < 1 or self.block_bytes < 1:
            raise Misuse("a block has tokens and bytes")
        if not 0 <= self.queue_seconds < math.inf:
            raise Misuse("the queue is from 0 seconds on")

    def after(self, blocks: int) -> int:
        """Tokens at hand once `blocks` more are."""
        return min(self.cached_tokens + blocks * self.block_tokens, self.total_tokens)

    @property
    def blocks_max(self) -> int:
        """Blocks that can help: the last token is always computed."""
        return max(0, (self.total_tokens - 1 - self.cached_tokens) // self.block_tokens)


@light_value()
class Run:
    """The next `blocks` blocks of the prompt lie in a tier of this speed."""

    speed: TierSpeed
    blocks: int


@light_value()
class _Leg:
    """Blocks that come one by one, `block_seconds` apart, the first after `latency` more."""

    blocks: int
    latency_seconds: float
    block_seconds: float


@light_value()
class FetchPlan:
    """The decision and its inputs. Times are seconds from the decision to the first token."""

    blocks: int  # leading blocks to fetch after the cached ones
    reason: FetchReason
    expected_seconds: float  # never above recompute_seconds
    recompute_seconds: float  # with no tier, the queue included
    fetch_seconds: float  # 0 where unknown
    deadline_seconds: float  # given up then if not one block has come
    demand: Demand
    curve: PrefillCurve
    legs: tuple[_Leg, ...]
    spread: float

    @property
    def gain_seconds(self) -> float:
        return self.recompute_seconds - self.expected_seconds

    @property
    def limit_seconds(self) -> float:
        """No fetch makes the first token later than this, hang or not."""
        return self.recompute_seconds * (1 + HANG_FRACTION)

    def left_seconds(self, blocks: int) -> float:
        """Prefill that is left once `blocks` blocks have come."""
        return self.curve.seconds(self.demand.after(blocks), self.demand.total_tokens)


def decide(demand: Demand, runs: Sequence[Run], prefill: PrefillSpeed | PrefillCurve) -> FetchPlan:
    """Return how many leading blocks of `runs` to fetch. Pure, deterministic.

    Tiers are taken one after the other, so the time of a plan over several is on the safe side.
    Between the points tried the time is a concave function of n, so its minimum is one of them.
    Cost: O(runs).
    """
    curve = prefill if isinstance(prefill, PrefillCurve) else prefill.curve()
    recompute = curve.seconds(demand.cached_tokens, demand.total_tokens)
    legs, obstacle, spread = _usable(runs, demand)
    base = demand.queue_seconds + recompute
    deadline = demand.queue_seconds + HANG_FRACTION * base

    def plan(blocks: int, reason: FetchReason, expected: float, fetch: float) -> FetchPlan:
        return FetchPlan(
            *(blocks, reason, expected, base, fetch, deadline, demand, curve, legs, spread)
        )

    if not legs:
        if obstacle is FetchReason.UNKNOWN_SPEED and HANG_FRACTION * base >= GAIN_SECONDS:
            blocks = min(next(run.blocks for run in runs if run.blocks > 0), demand.blocks_max)
            legs = (_Leg(blocks, HANG_FRACTION * base, 0.0),)
            return plan(blocks, FetchReason.EXPLORES, base, 0.0)
        return plan(0, obstacle, base, 0.0)
    best, expected, fetch = 0, base, 0.0
    for blocks, seconds in _points(legs, demand.queue_seconds):
        left = curve.seconds(demand.after(blocks), demand.total_tokens)
        total = max(demand.queue_seconds, seconds) + left
        if total < expected:
            best, expected, fetch = blocks, total, seconds
    if not best:
        return plan(0, FetchReason.RECOMPUTE_FASTER, base, 0.0)
    if base - expected <= max(GAIN_FRACTION * recompute, GAIN_SECONDS):
        return plan(0, FetchReason.TOO_LITTLE, base, 0.0)
    first = legs[0].latency_seconds + legs[0].block_seconds
    in_time = _chance(deadline, first, spread)
    if in_time * (base - expected) <= 2 * (1 - in_time) * HANG_FRACTION * base:
        return plan(0, FetchReason.TOO_FAR, base, 0.0)
    return plan(best, FetchReason.FETCH_PAYS, expected, fetch)


def _chance(deadline: float, expected: float, spread: float) -> float:
    """Chance that what is due at `expected` comes before `deadline`: a normal distribution."""
    sigma = (spread - 1) / P90
    if not sigma:
        return float(expected <= deadline)
    return (1 + math.erf((deadline / expected - 1) / sigma / math.sqrt(2))) / 2


def _usable(runs: Sequence[Run], demand: Demand) -> tuple[tuple[_Leg, ...], FetchReason, float]:
    """Legs up to the first obstacle, why there are none, and the greatest spread."""
    legs: list[_Leg] = []
    spread, left = 1.0, demand.blocks_max
    for run in runs:
        blocks = min(run.blocks, left)
        if blocks <= 0:
            continue
        if run.speed.suspended:
            return tuple(legs), FetchReason.TIER_SUSPENDED, spread
        if not run.speed.samples:
            return tuple(legs), FetchReason.UNKNOWN_SPEED, spread
        block = demand.block_bytes / run.speed.bytes_per_second
        legs.append(_Leg(blocks, run.speed.latency_seconds, block))
        spread = max(spread, run.speed.spread)
        left -= blocks
    return tuple(legs), FetchReason.NOTHING_THERE, spread


def _points(legs: Sequence[_Leg], free_seconds: float) -> Iterator[tuple[int, float]]:
    """(blocks, seconds to fetch them) where the best choice can lie, fewest first; some twice."""
    done, start = 0, 0.0
    for leg in legs:
        start += leg.latency_seconds
        yield done + 1, start + leg.block_seconds
        if free_seconds > start:
            free = int(min(leg.blocks, (free_seconds - start) / leg.block_seconds))
            for count in (free, min(free + 1, leg.blocks)) if free else ():
                yield done + count, start + count * leg.block_seconds
        yield done + leg.blocks, start + leg.blocks * leg.block_seconds
        done += leg.blocks
        start += leg.blocks * leg.block_seconds


def stalled(elapsed_seconds: float, blocks_done: int, plan: FetchPlan) -> bool:
    """Whether to give up a fetch: recompute from the `blocks_done` leading blocks that have come.

    True once going on may cost more than HANG_FRACTION, and for a fetch that is late and, at the
    pace it has shown, dearer than recomputing the rest. Ask at least each millisecond or two: what
    passes between two questions comes on top.
    """
    if blocks_done >= plan.blocks or elapsed_seconds <= plan.demand.queue_seconds:
        return False
    left = plan.left_seconds(blocks_done)
    if elapsed_seconds + left > plan.limit_seconds:
        return True
    expected, latency = _expected(plan.legs, blocks_done + 1)
    if not blocks_done or elapsed_seconds <= _LATE * plan.spread * expected:
        return False
    pace = max(0.0, elapsed_seconds - latency) / (blocks_done + 1)
    saved = left - plan.left_seconds(plan.blocks)
    return pace * (plan.blocks - blocks_done) > _DEARER * saved


def _expected(legs: Sequence[_Leg], blocks: int) -> tuple[float, float]:
    """When the `blocks`th block should be there, and the part of that which is latency."""
    seconds = latency = 0.0
    for leg in legs:
        count = min(leg.blocks, blocks)
        latency += leg.latency_seconds
        seconds += leg.latency_seconds + count * leg.block_seconds
        blocks -= count
        if not blocks:
            break
    return seconds, latency
