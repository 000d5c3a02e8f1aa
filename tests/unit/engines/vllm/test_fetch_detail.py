"""L10: the times that a caller is told are of its own work, not of other tenants' before it."""

from __future__ import annotations

from scopekv.core.fetching import Demand, PrefillSpeed, Run, TierSpeed, decide
from scopekv.engines.vllm.offloading.planning import told


def test_the_times_of_a_decision_leave_the_queue_out() -> None:
    run = Run(TierSpeed(0.001, 1e9, samples=9), 60)
    shown = [
        told(decide(Demand(2000, 0, 32, 1 << 20, queue_seconds=queue), [run], PrefillSpeed()))
        for queue in (0.0, 0.0125)
    ]
    assert shown[0] == shown[1]
