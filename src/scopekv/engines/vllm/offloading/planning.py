"""Fetch or recompute, request by request: core's decision with this engine's measurements (L9)."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from scopekv.core.fetching import (
    HANG_FRACTION,
    Demand,
    FetchPlan,
    PrefillCurve,
    PrefillSpeed,
    Run,
    decide,
)
from scopekv.store.tier import SealedTier

PATIENCE_SECONDS_MAX = 0.25
KEYS_FRACTION = 0.2
# While an auditor reads one tier alone, that it answers at all is asked, not whether it pays.
EAGER = PrefillCurve(fixed_seconds=0.0, token_seconds=1.0, pair_seconds=0.0)
EAGER_PATIENCE_SECONDS = 5.0


class Planner:
    """Measures prefill and makes plans.

    `chunk_*`: of one offloaded chunk. `tokens_per_second`: what prefill is taken to do until the
    first step shows it.
    """

    def __init__(self, chunk_tokens: int, chunk_bytes: int, tokens_per_second: float) -> None:
        self.chunk_tokens = chunk_tokens
        self.chunk_bytes = chunk_bytes
        self.prefill = PrefillSpeed(tokens_per_second=tokens_per_second)
        self.eager_until = 0.0  # by this process's monotonic clock
        self.counts: Counter[str] = Counter()
        self.sums: defaultdict[str, float] = defaultdict(
            float
        )  # of the decisions' inputs and outcomes, in seconds

    def observe(self, start: int, tokens: int, seconds: float) -> None:
        """Learn from a step that prefilled `tokens` tokens after `start`."""
        self.prefill.observe(start, tokens, seconds)

    def chunk_cost(self, depth: int) -> float:
        """Seconds to make the chunk after `depth` others again."""
        start = depth * self.chunk_tokens
        return self.prefill.seconds(start, start + self.chunk_tokens)

    def patience_seconds(self, start: int, end: int) -> tuple[float, float]:
        """How long a request with these tokens to prefill may wait: for keys, for tiers' answers.

        Keys are waited for once in a lease's life, and an answering broker has them in
        milliseconds; a store may be slow at any time.
        """
        if self._eager():
            return EAGER_PATIENCE_SECONDS, EAGER_PATIENCE_SECONDS
        recompute = self.prefill.seconds(start, end)
        wait = HANG_FRACTION * recompute
        return min(PATIENCE_SECONDS_MAX, KEYS_FRACTION * recompute), min(PATIENCE_SECONDS_MAX, wait)

    def plan(
        self,
        total_tokens: int,
        cached_tokens: int,
        runs: Sequence[tuple[int, int]],
        tiers: Sequence[SealedTier],
        queue_tokens: int,
    ) -> FetchPlan:
        """Decide about the blocks after `cached_tokens`; `runs` are (tier, blocks) in order."""
        curve = EAGER if self._eager() else self.prefill.curve()
        total_tokens = max(1, total_tokens)
        demand = Demand(
            total_tokens,
            min(cached_tokens, total_tokens),
            self.chunk_tokens,
            self.chunk_bytes,
            curve.seconds(0, queue_tokens),
        )
        made = decide(demand, [Run(tiers[i].speed(), blocks) for i, blocks in runs], curve)
        self.counts[made.reason] += 1
        self.sums["expected_seconds"] += made.expected_seconds
        self.sums["recompute_seconds"] += made.recompute_seconds
        self.sums["fetch_seconds"] += made.fetch_seconds
        self.sums["queue_seconds"] += demand.queue_seconds
        return made

    def _eager(self) -> bool:
        return time.monotonic() < self.eager_until

    def report(self) -> dict[str, Any]:
        """The prefill curve and how often each reason was given."""
        curve = self.prefill.curve()
        return {
            "prefill": {
                "fixed_seconds": curve.fixed_seconds,
                "token_seconds": curve.token_seconds,
                "pair_seconds": curve.pair_seconds,
                "samples": self.prefill.samples,
            },
            "sums": dict(self.sums),
            "reasons": {str(reason): count for reason, count in self.counts.items()},
        }


def told(plan: FetchPlan) -> dict[str, Any]:
    """A decision for the detail of its own request: without the queue, which is all tenants' (L10).

    Times are milliseconds.
    """
    queue = plan.demand.queue_seconds
    return {
        "reason": plan.reason.value,
        "blocks": plan.blocks,
        "recompute_ms": round(1000 * (plan.recompute_seconds - queue), 3),
        "fetch_ms": round(1000 * plan.fetch_seconds, 3),
        "cached_tokens": plan.demand.cached_tokens,
        "tokens": plan.demand.total_tokens,
    }
