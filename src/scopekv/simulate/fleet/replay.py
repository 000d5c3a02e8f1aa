"""One plan over one workload, from the first arrival to the last token."""

from __future__ import annotations

from typing import Any

from scopekv.simulate.fleet.figures import figures_of
from scopekv.simulate.fleet.fleet import Fleet, Progress
from scopekv.simulate.fleet.plan import FleetPlan
from scopekv.simulate.fleet.prices import Prices
from scopekv.simulate.fleet.workloads import Workload


def fleet_for(plan: FleetPlan, workload: Workload) -> Fleet:
    """A fleet that is ready to run the workload."""
    tenancy = workload.tenancy(plan.tenants, plan.seed)
    warm = int(plan.warm_up * workload.profile.requests)
    return Fleet(plan, tenancy, workload.block_tokens, warm)


def replay(
    plan: FleetPlan,
    workload: Workload,
    *,
    prices: Prices | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Run a plan and return its figures (`figures.figures_of`)."""
    fleet = fleet_for(plan, workload)
    fleet.run(workload.requests(), progress)
    return figures_of(fleet, prices)
