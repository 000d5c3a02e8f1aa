"""An instance's arithmetic: queue, chunks, decode beside, room, tiers; times computed by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from scopekv.core.events import Medium
from scopekv.core.speeds import TierSpeed
from scopekv.simulate.fleet.fleet import Fleet
from scopekv.simulate.fleet.identity import Isolation, Tenant
from scopekv.simulate.fleet.placing import Scoped
from scopekv.simulate.fleet.plan import FleetPlan
from scopekv.simulate.fleet.speeds import DecodeStep, Prefill, Speeds
from scopekv.simulate.fleet.tenants import KnownTenancy
from scopekv.simulate.traces.request import TracedRequest

SIZE = 100
# A token a millisecond, ten more a request; a decode step takes 50 ms, whoever decodes.
SPEEDS = Speeds(
    name="round",
    source="numbers to compute with",
    kv_bytes_per_token=1000,
    engine_tokens=10_000,
    prefill=Prefill(0.010, 0.001, 0.0, chunk_tokens=1000),
    steps=(DecodeStep(1, 0.05), DecodeStep(2, 0.05)),
    tiers={
        "host": TierSpeed(0.0, 1e9, samples=1),
        "disk": TierSpeed(0.001, 1e7, samples=1),
        "remote": TierSpeed(10.0, 1e9, samples=1),
    },
)
PLAN = FleetPlan(isolation=Isolation.NONE, speeds=SPEEDS, route="round-robin")


def asks(at: float, ids: list[int], answer: int = 1, session: int = 0) -> TracedRequest:
    return TracedRequest(at, len(ids) * SIZE, answer, SIZE, ids, session)


def run(plan: FleetPlan, *requests: TracedRequest) -> Fleet:
    fleet = Fleet(plan, KnownTenancy(1, 1, lambda _: Tenant(0, 0)), SIZE)
    fleet.run(requests)
    return fleet


def slowest(fleet: Fleet) -> float:
    return fleet.counts.ttft.at(1.0)


def test_a_prompt_alone_takes_its_prefill() -> None:
    assert slowest(run(PLAN, asks(0, [1, 2]))) == pytest.approx(0.210, rel=0.01)


def test_a_second_waits_for_the_first_and_reads_what_it_made() -> None:
    fleet = run(PLAN, asks(0, [1, 2]), asks(0.05, [1, 3]))
    assert slowest(fleet) == pytest.approx(0.210 - 0.05 + 0.110, rel=0.01)
    assert fleet.counts.cached_tokens == SIZE


def test_a_prompt_that_is_cached_whole_still_computes_its_last_token() -> None:
    fleet = run(PLAN, asks(0, [1, 2]), asks(5, [1, 2]))
    assert fleet.counts.cached_tokens == 2 * SIZE
    assert fleet.counts.saved_tokens == 2 * SIZE - 1
    assert fleet.counts.prefill_seconds == pytest.approx(0.210 + 0.011)


def test_a_chunk_of_prefill_takes_a_step_of_those_that_decode_along() -> None:
    fleet = run(PLAN, asks(0, [1], answer=100), asks(1, list(range(50, 70))))
    assert slowest(fleet) == pytest.approx(2.010 + 2 * 0.05, rel=0.01)
    # 99 tokens at 50 ms, of which the two chunks of 2.11 s gave two
    assert fleet.counts.ended_at == pytest.approx(0.110 + 97 * 0.05 + 2.110)


def test_who_does_not_fit_waits_until_an_answer_ends() -> None:
    plan = replace(PLAN, engine_tokens=6 * SIZE)
    fleet = run(plan, asks(0, [1, 2, 3], answer=100), asks(0.5, [4, 5, 6], answer=1))
    first_done = 0.310 + 99 * 0.05
    assert slowest(fleet) == pytest.approx(first_done - 0.5 + 0.310, rel=0.01)
    assert fleet.instances[0].memory.evicted


def test_what_never_fits_is_rejected_and_nobody_waits_for_it() -> None:
    plan = replace(PLAN, engine_tokens=3 * SIZE)
    fleet = run(plan, asks(0, [1, 2, 3, 4]), asks(0, [5]))
    assert (fleet.counts.rejected, fleet.counts.requests) == (1, 1)
    assert fleet.instances[0].in_flight == 0


def test_host_memory_is_copied_back() -> None:
    plan = replace(PLAN, engine_tokens=4 * SIZE, tiers={"host": math.inf})
    fleet = run(plan, asks(0, [1, 2]), asks(1, [5, 6, 7]), asks(2, [1, 2, 3]))
    assert fleet.counts.by_tier == {"engine": 0, "host": 2 * SIZE}
    assert fleet.instances[0].tiers.traffic["host"].read_bytes == 2 * SIZE * 1000
    assert fleet.counts.prefill_seconds == pytest.approx(0.210 + 0.310 + 0.110)


@pytest.mark.parametrize(("tier", "found"), [("disk", 10 * SIZE), ("remote", 0)])
def test_a_tier_is_read_where_that_is_faster(tier: str, found: int) -> None:
    """Ten blocks from the disk: 0.1 s, not 1.0; the first from the store comes after 10 s."""
    plan = replace(PLAN, engine_tokens=14 * SIZE, tiers={tier: math.inf})
    ids = list(range(11))
    fleet = run(plan, asks(0, ids), asks(5, list(range(50, 63))), asks(9, ids))
    assert fleet.counts.by_tier[tier] == found


def test_a_store_is_every_instances() -> None:
    quick = replace(SPEEDS, tiers={"remote": TierSpeed(0.001, 1e9, samples=1)})
    plan = replace(PLAN, instances=2, speeds=quick, tiers={"remote": math.inf})
    ids = list(range(11))
    fleet = run(plan, asks(0, ids), asks(5, ids))
    assert fleet.counts.by_instance == {0: 1, 1: 1}
    assert fleet.counts.by_tier["remote"] == 10 * SIZE


def test_overhead_is_in_the_first_token_and_keeps_nobody_waiting() -> None:
    plan = replace(PLAN, speeds=replace(SPEEDS, overhead_seconds=1.0))
    fleet = run(plan, asks(0, [1]), asks(0, [2]))
    assert slowest(fleet) == pytest.approx(1.0 + 2 * 0.110, rel=0.01)


@pytest.mark.parametrize("route", ["scopekv", "least-loaded", "session", "random", "round-robin"])
def test_every_route_places_everything_and_counts_back_to_nothing(route: str) -> None:
    plan = replace(PLAN, instances=3, route=route)
    requests = [asks(n / 50, [n % 5, 100 + n], answer=3, session=n % 4) for n in range(90)]
    fleet = run(plan, *requests)
    assert fleet.counts.requests == 90
    assert all(one.in_flight == 0 for one in fleet.instances)
    assert sum(fleet.route.reasons.values()) == 90
    if route == "round-robin":
        assert set(fleet.counts.by_instance.values()) == {30}


def test_scopekv_goes_where_the_prefix_is() -> None:
    plan = replace(PLAN, instances=3, route="scopekv")
    turns = [asks(10.0 * n, list(range(n + 30)), session=0) for n in range(10)]
    fleet = run(plan, *turns)
    assert fleet.counts.by_instance.most_common(1)[0][1] == 10
    assert fleet.route.reasons["prefix_here"] == 9


def test_scopekv_goes_where_a_disk_has_the_prefix() -> None:
    quick = replace(SPEEDS, tiers={"disk": TierSpeed(0.001, 1e9, samples=1)})
    plan = replace(PLAN, instances=2, route="scopekv", speeds=quick, engine_tokens=14 * SIZE)
    ids = list(range(11))
    floods = [asks(5 + n, list(range(20 * n + 50, 20 * n + 63))) for n in range(4)]
    fleet = run(replace(plan, tiers={"disk": math.inf}), asks(0, ids), *floods, asks(20, ids))
    assert fleet.route.reasons["prefix_in_tier"] == 1
    assert fleet.counts.by_tier["disk"] == 10 * SIZE


def test_scopekv_knows_what_a_store_of_all_holds() -> None:
    """Whoever put a block there, and whoever had it evicted."""
    quick = replace(SPEEDS, tiers={"remote": TierSpeed(0.001, 1e9, samples=1)})
    plan = replace(PLAN, instances=3, route="scopekv", speeds=quick, engine_tokens=14 * SIZE)
    requests = [asks(n / 5, list(range(100 * n, 100 * n + 9))) for n in range(30)]
    plan = replace(plan, policy="gdsf", tiers={"remote": 40 * SIZE})  # which admits everything
    fleet = run(plan, *requests)
    assert isinstance(fleet.route, Scoped)
    remote = fleet.instances[0].tiers.memories["remote"]
    assert remote.evicted > 0
    assert fleet.route.index.size("0", Medium.VALKEY) == len(remote) > 0
    assert fleet.route.index.size("1", Medium.VALKEY) == 0
