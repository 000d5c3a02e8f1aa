"""What the tiers did, in the engine's own /metrics. All labels are closed sets."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics import OffloadingConnectorStats
from vllm.v1.kv_offload.base import OffloadingCounterMetadata, OffloadingGaugeMetadata

if TYPE_CHECKING:
    from scopekv.engines.vllm.offloading.manager import ScopedOffloadingManager

TIER_EVENTS = "scopekv:tier_events"
DECISIONS = "scopekv:fetch_decisions"
TIER_NOW = "scopekv:tier_now"
DECIDED = "scopekv:fetch_decided_seconds"
PREFILL = "scopekv:prefill_seconds_per_token"
_NOW = ("used_bytes", "objects", "queued", "suspended", "writes_suspended")


def definitions() -> dict[str, Any]:
    """The metrics that `TierMetrics.take` reports, as vLLM registers them."""
    return {
        TIER_EVENTS: OffloadingCounterMetadata(
            documentation="Blocks of sealed tiers by what happened to them (bytes_* in bytes).",
            labelnames=("tier", "event"),
        ),
        DECISIONS: OffloadingCounterMetadata(
            documentation="Requests by why blocks were fetched from a tier, or made again.",
            labelnames=("reason",),
        ),
        DECIDED: OffloadingCounterMetadata(
            documentation="Sums over decisions: expected, recompute, fetch and queue seconds.",
            labelnames=("what",),
        ),
        TIER_NOW: OffloadingGaugeMetadata(
            documentation="State of sealed tiers: sizes, latency_seconds, bytes_per_second.",
            labelnames=("tier", "what"),
        ),
        PREFILL: OffloadingGaugeMetadata(
            documentation="Measured prefill time of a token, without what attention adds."
        ),
    }


class TierMetrics:
    """Turns counters that only rise into what vLLM collects: the rise since the last time."""

    def __init__(self) -> None:
        self._told: defaultdict[tuple[str, ...], float] = defaultdict(float)

    def take(self, manager: ScopedOffloadingManager) -> Any:
        """Return the news since the last call. Cost: some dictionary look-ups per tier."""
        stats = OffloadingConnectorStats()
        for tier in manager.secondary_tiers:
            name = tier.medium_name
            for event, count in tier.sealed.counters().items():
                if event in _NOW:
                    stats.set_gauge(TIER_NOW, count, (name, event))
                elif rise := self._rise((name, event), count):
                    stats.increase_counter(TIER_EVENTS, rise, (name, event))
            for what, value in tier.speed_report().items():
                stats.set_gauge(TIER_NOW, value, (name, what))
        for reason, count in manager.planner.counts.items():
            if rise := self._rise((str(reason),), count):
                stats.increase_counter(DECISIONS, rise, (str(reason),))
        for what, seconds in manager.planner.sums.items():
            if rise := self._rise((what, "sum"), seconds):
                stats.increase_counter(DECIDED, rise, (what,))
        stats.set_gauge(PREFILL, manager.planner.prefill.curve().token_seconds)
        return stats

    def _rise(self, key: tuple[str, ...], count: float) -> float:
        rise = count - self._told[key]
        self._told[key] = count
        return rise
