"""What the tiers did, in the engine's own /metrics. All labels are closed sets."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics import OffloadingConnectorStats
from vllm.v1.kv_offload.base import OffloadingCounterMetadata, OffloadingGaugeMetadata

if TYPE_CHECKING:
    from scopekv.engines.vllm.offloading.manager import ScopedOffloadingManager

TIER_EVENTS = "scopekv:tier_events"
DECISIONS = "scopekv:fetch_decisions"
TIER_NOW = "scopekv:tier_now"
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
        self._told: Counter[tuple[str, ...]] = Counter()

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
        stats.set_gauge(PREFILL, manager.planner.prefill.curve().token_seconds)
        return stats

    def _rise(self, key: tuple[str, ...], count: int) -> int:
        rise = count - self._told[key]
        self._told[key] = count
        return rise
