"""The simulated engine and tier of the sweep, and the oracle that knows their true times."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from scopekv.core.fetching import (
    Demand,
    FetchPlan,
    PrefillSpeed,
    Run,
    TierMeter,
    decide,
    stalled,
)
from scopekv.core.reasons import FetchReason

BLOCK_TOKENS = 32
POLL_SECONDS = 0.001
WARM_UP_TOKENS = 256  # every engine does one prefill before its first request
HANGS = 4  # requests in a row that find the tier hanging
FORGET_AFTER = 16  # requests without an observation
TIER_NOISE, PREFILL_NOISE = 0.25, 0.1  # standard deviations of the logarithm


@dataclass(frozen=True)
class Moment:
    """The true times of one request."""

    latency: float
    block_seconds: float
    fixed: float
    token: float
    pair: float
    hangs_after: int | None  # blocks that come before the tier says no more

    def fetch(self, blocks: int) -> float:
        if self.hangs_after is not None and blocks > self.hangs_after:
            return math.inf
        return self.latency + blocks * self.block_seconds if blocks else 0.0

    def prefill(self, start: int, end: int) -> float:
        pairs = (end * end - start * start) / 2
        return self.fixed + self.token * (end - start) + self.pair * pairs


@dataclass(frozen=True)
class Stage:
    """One step of the sweep."""

    latency: float
    bandwidth: float
    block_bytes: int
    tokens_per_second: float


class Engine:
    """What an engine with one tier would know and do."""

    def __init__(self, block_bytes: int) -> None:
        self.prefill, self.meter = PrefillSpeed(), TierMeter()
        self.block_bytes, self.suspended, self.silent = block_bytes, False, 0

    def serve(self, demand: Demand, held: int, moment: Moment) -> tuple[float, FetchReason]:
        """Return the TTFT of one request whose next `held` blocks are in the tier."""
        if self.silent >= FORGET_AFTER:
            self.meter.forget()
        run = Run(self.meter.speed(suspended=self.suspended), held)
        plan = decide(demand, [run], self.prefill)
        done, ended = self._fetch(plan, moment) if plan.blocks else (0, 0.0)
        self.silent = 0 if plan.blocks else self.silent + (held > 0)
        start = demand.after(done)
        seconds = moment.prefill(start, demand.total_tokens)
        self.prefill.observe(start, demand.total_tokens - start, seconds)
        self._probe(moment)
        return max(demand.queue_seconds, ended) + seconds, plan.reason

    def _fetch(self, plan: FetchPlan, moment: Moment) -> tuple[int, float]:
        """Blocks that came, and when the fetch ended or was given up."""
        now = 0.0
        for done in range(plan.blocks):
            due = moment.fetch(done + 1)
            if stalled(min(due, 1e9), done, plan):
                ended = _crossing(now, min(due, 1e9), done, plan) + POLL_SECONDS
                if ended < due:
                    self._given_up(done, ended)
                    return done, ended
            now = due
            if done == 0 and plan.blocks > 1:
                self.meter.observe(self.block_bytes, now)
        self.meter.observe(plan.blocks * self.block_bytes, now)
        return plan.blocks, now

    def _given_up(self, done: int, ended: float) -> None:
        if done > 1:
            self.meter.observe(done * self.block_bytes, ended)
        self.meter.gave_up((done + 1) * self.block_bytes, ended)
        self.suspended = True

    def _probe(self, moment: Moment) -> None:
        """A suspended tier is asked for one block besides, until it answers."""
        if self.suspended and moment.hangs_after is None:
            self.meter.observe(self.block_bytes, moment.fetch(1))
            self.suspended = False


def _crossing(low: float, high: float, done: int, plan: FetchPlan) -> float:
    """The first moment at which the fetch counts as stalled; it is not before `low`."""
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if stalled(middle, done, plan) else (middle, high)
    return high


def oracle(demand: Demand, held: int, moment: Moment) -> float:
    """The best TTFT there is for this request."""
    return min(
        max(demand.queue_seconds, moment.fetch(blocks))
        + moment.prefill(demand.after(blocks), demand.total_tokens)
        for blocks in range(min(held, demand.blocks_max) + 1)
    )


def drawn_moment(
    stage: Stage, dice: random.Random, tier: float, engine: float, *, hangs: bool
) -> Moment:
    token = dice.lognormvariate(0, PREFILL_NOISE) / (stage.tokens_per_second * engine)
    return Moment(
        latency=stage.latency / tier * dice.lognormvariate(0, TIER_NOISE),
        block_seconds=stage.block_bytes
        / stage.bandwidth
        / tier
        * dice.lognormvariate(0, TIER_NOISE),
        fixed=4 * token,
        token=token,
        pair=token / 8000,
        hangs_after=dice.choice([0, 0, 5, 40]) if hangs else None,
    )


def drawn_demand(stage: Stage, dice: random.Random, moment: Moment) -> tuple[Demand, int]:
    total = dice.randint(500, 6000)
    cached = dice.choice([0, 0, dice.randint(0, total // 2 // BLOCK_TOKENS) * BLOCK_TOKENS])
    work = moment.prefill(cached, total)
    queue = dice.expovariate(2 / work) if dice.random() < 0.5 else 0.0
    held = int((total - cached) / BLOCK_TOKENS * dice.choice([0.0, 0.5, 0.9, 1.0]))
    return Demand(total, cached, BLOCK_TOKENS, stage.block_bytes, queue), held
