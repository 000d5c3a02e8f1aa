"""What is counted while a fleet runs, each figure once and under its own name (L12)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from scopekv.simulate.fleet.histogram import Histogram
from scopekv.simulate.fleet.identity import LAYER_KINDS
from scopekv.simulate.fleet.job import Job
from scopekv.simulate.fleet.timeline import Timeline


class Counts:
    """Of the requests after the warm-up. Tokens are input tokens but for `output_tokens`."""

    def __init__(self) -> None:
        self.requests = self.requests_hit = self.rejected = 0
        self.input_tokens = self.output_tokens = self.cached_tokens = 0
        self.saved_tokens = 0  # prefill: the last token is computed, cached or not
        self.saved_seconds = self.prefill_seconds = 0.0
        self.by_tier: Counter[str] = Counter()
        self.scope_input: Counter[str] = Counter()
        self.scope_cached: Counter[str] = Counter()
        self.org_input: Counter[int] = Counter()
        self.org_cached: Counter[int] = Counter()
        self.org_allowed: Counter[int] = Counter()
        self.by_instance: Counter[int] = Counter()
        self.ttft = Histogram()
        self.timeline = Timeline()
        self.began_at = self.ended_at = 0.0
        self.last_arrival_at = self.last_turn_at = 0.0  # a turn: its prefill begins

    def first_token(self, job: Job, seconds: float, prefill: tuple[float, float]) -> None:
        """`seconds` to it; `prefill`: seconds with the cache, and seconds without any."""
        total, cached = job.input_tokens, job.cached_tokens
        self.requests += 1
        self.requests_hit += cached > 0
        self.input_tokens += total
        self.output_tokens += job.output_tokens
        self.cached_tokens += cached
        self.saved_tokens += min(cached, total - 1)
        self.prefill_seconds += prefill[0]
        self.saved_seconds += prefill[1] - prefill[0]
        self.ttft.add(seconds)
        self.last_turn_at = max(self.last_turn_at, job.started_at)
        self._tiers(job.found, job.block_tokens, total)
        self._scopes(job)
        org = job.placed.tenant.org
        self.org_input[org] += total
        self.org_cached[org] += cached
        number = job.instance.number if job.instance is not None else 0
        self.by_instance[number] += 1
        here = self.timeline.at(job.first_at)
        here.requests += 1
        here.input_tokens += total
        here.cached_tokens += cached
        here.ttft_seconds += seconds
        here.work[number] = here.work.get(number, 0.0) + job.first_at - job.started_at

    def _tiers(self, found: Mapping[str, int], size: int, total: int) -> None:
        blocks = before = 0
        for tier, count in found.items():
            blocks += count
            tokens = min(blocks * size, total)
            self.by_tier[tier] += tokens - before
            before = tokens

    def _scopes(self, job: Job) -> None:
        size, total, cached, layers = (
            *(job.block_tokens, job.input_tokens, job.cached_tokens, job.placed.layers),
        )
        before = 0
        ends = (layers.public_blocks * size, layers.org_blocks * size, total)
        for kind, end in zip(LAYER_KINDS, ends, strict=True):
            upto = min(end, total)
            self.scope_input[kind] += upto - before
            self.scope_cached[kind] += max(0, min(cached, upto) - before)
            before = upto
