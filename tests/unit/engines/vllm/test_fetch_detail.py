"""L10: what a caller is told of a decision says nothing of other tenants' load."""

from __future__ import annotations

from scopekv.core.fetching import Demand, PrefillSpeed, Run, TierSpeed, decide
from scopekv.engines.vllm.offloading.planning import told


def test_the_detail_of_a_decision_is_the_same_behind_any_queue() -> None:
    run = Run(TierSpeed(0.001, 1e9, samples=9), 60)
    shown = [
        told(decide(Demand(2000, 0, 32, 1 << 20, queue_seconds=queue), [run], PrefillSpeed()))
        for queue in (0.0, 0.0125)
    ]
    assert shown[0] == shown[1]
