"""The whole: arrivals in order, a route, instances, and what they share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from scopekv.errors import Misuse
from scopekv.simulate.fleet.clock import Clock
from scopekv.simulate.fleet.counts import Counts
from scopekv.simulate.fleet.identity import Identities, Isolation
from scopekv.simulate.fleet.instance import Instance
from scopekv.simulate.fleet.job import Job
from scopekv.simulate.fleet.memory import TIER_POLICY, Memory, Room
from scopekv.simulate.fleet.placing import make_route, outer_tiers
from scopekv.simulate.fleet.plan import AS_BUILT, FleetPlan
from scopekv.simulate.fleet.speeds import TIERS
from scopekv.simulate.fleet.tenants import Placed
from scopekv.simulate.fleet.tiers import Tiers
from scopekv.simulate.fleet.unlimited import Unlimited
from scopekv.simulate.traces.request import TracedRequest

Progress = Callable[[int], None]  # requests that have arrived


class Places(Protocol):
    """Who sends each request: a tenancy of `tenants`."""

    orgs: int
    users: int

    def place(self, request: TracedRequest) -> Placed: ...


class Fleet:
    """One run of one plan; use it once. Deterministic: the same arguments, the same figures."""

    def __init__(self, plan: FleetPlan, tenancy: Places, block_tokens: int, warm: int = 0) -> None:
        self.plan, self.counts, self.clock = plan, Counts(), Clock()
        self._tenancy, self._block_tokens, self._warm = tenancy, block_tokens, warm
        self.block_bytes = block_tokens * plan.speeds.kv_bytes_per_token
        self._identities = Identities(plan.isolation, orgs=tenancy.orgs, users=tenancy.users)
        self.allowed, self.oracle = Unlimited(), Unlimited()
        speeds = {tier: plan.speeds.speed_of(tier) for tier in plan.tiers}
        outer = outer_tiers(speeds, block_tokens, self.block_bytes)
        self.route = make_route(plan.route, plan.instances, plan.seed, outer)
        self._curve = plan.speeds.prefill.curve()
        remote = self._memory("remote", plan.tiers["remote"]) if "remote" in plan.tiers else None
        self.instances = [self._instance(number, remote) for number in range(plan.instances)]
        self._number = 0

    def _memory(self, name: str, tokens: float) -> Memory:
        as_built, engine = self.plan.policy == AS_BUILT, name == "engine"
        policy = ("lru" if engine else TIER_POLICY) if as_built else self.plan.policy
        blocks = math.inf if math.isinf(tokens) else tokens // self._block_tokens
        if blocks < 1:
            raise Misuse(
                f"{name} holds {tokens:.0f} tokens, less than one block of {self._block_tokens}"
            )
        return Memory(Room(blocks, policy), self.block_bytes)

    def _instance(self, number: int, remote: Memory | None) -> Instance:
        plan, name = self.plan, str(number)
        memories = {
            tier: self._memory(tier, plan.tiers[tier])
            for tier in TIERS
            if tier in plan.tiers and tier != "remote"
        }
        if remote is not None:
            memories["remote"] = remote

        def told(tier: str, new: Sequence[int], gone: Sequence[int]) -> None:
            self.route.changed(name, tier, new, gone)

        speeds = {tier: plan.speeds.speed_of(tier) for tier in memories}
        return Instance(
            number,
            self.clock,
            plan.speeds,
            self._memory("engine", plan.engine_tokens),
            Tiers(memories, speeds, self.block_bytes, told),
            changed=lambda one, place, new, gone: self.route.changed(one.name, place, new, gone),
            first=self._first,
            done=self._done,
            rejected=self._rejected,
        )

    def run(self, requests: Iterable[TracedRequest], progress: Progress | None = None) -> None:
        """Let every request arrive and end. Holds those in flight alone."""
        clock, speed_up = self.clock, self.plan.speed_up
        for request in requests:
            clock.run_to(request.at_seconds / speed_up)
            self._arrive(request)
            if progress is not None and not self._number & 255:
                progress(self._number)
        self.counts.last_arrival_at = clock.now
        clock.run_out()

    def _arrive(self, request: TracedRequest) -> None:
        if request.block_tokens != self._block_tokens:
            raise Misuse(
                f"a trace has blocks of one size; here are {request.block_tokens} tokens after "
                f"{self._block_tokens}"
            )
        now = self.clock.now
        placed = self._tenancy.place(request)
        names = self._identities.name(request.block_ids, placed.tenant, placed.layers)
        if len(set(names)) != len(names):
            raise Misuse("a prompt names one block twice: block ids name whole prefixes")
        self._number += 1
        job = Job(self._number, now, placed, names)
        self._bounds(job, request)
        self.instances[self.route.choose(job, now)].take(job)

    def _bounds(self, job: Job, request: TracedRequest) -> None:
        """What infinite memory finds of it, under this isolation and under none."""
        if self._number == self._warm + 1:
            self.counts.began_at = self.clock.now
            for bound in (self.allowed, self.oracle):
                bound.hit_tokens = bound.input_tokens = 0
        size, total = self._block_tokens, request.input_tokens
        hit = without = self.allowed.take(job.names, size, total)
        if self._counted(job):
            self.counts.org_allowed[job.placed.tenant.org] += hit
        if self.plan.isolation is not Isolation.NONE:
            without = self.oracle.take(request.block_ids, size, total)
        job.bounds = hit, without

    def bounds(self) -> tuple[Unlimited, Unlimited]:
        """(what isolation allows, what no isolation would)."""
        none = self.plan.isolation is Isolation.NONE
        return self.allowed, self.allowed if none else self.oracle

    def _counted(self, job: Job) -> bool:
        return job.number > self._warm

    def _first(self, job: Job) -> None:
        self.route.first_token(job, self.clock.now)
        if self._counted(job):
            seconds = self.clock.now - job.at + self.plan.speeds.overhead_seconds
            cached, total = min(job.cached_tokens, job.input_tokens - 1), job.input_tokens
            curve = self._curve
            self.counts.first_token(
                job, seconds, (curve.seconds(cached, total), curve.seconds(0, total))
            )

    def _done(self, job: Job) -> None:
        self.route.ended(job, self.clock.now)
        self.counts.ended_at = self.clock.now

    def _rejected(self, job: Job) -> None:
        """No engine can hold it: it is in no rate, so in no bound of one either."""
        self.route.ended(job, self.clock.now)
        if not self._counted(job):
            return
        self.counts.rejected += 1
        self.counts.org_allowed[job.placed.tenant.org] -= job.bounds[0]
        for bound, hit in zip((self.allowed, self.oracle), job.bounds, strict=True):
            bound.hit_tokens -= hit
            bound.input_tokens -= job.input_tokens
