"""What lies behind engine memory: host memory and a disk of the instance, a store of all.

As in the engine: what is computed is copied to host memory and offered to every outer tier; host
memory is copied back without a question, outer tiers where `core.fetching.decide` says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from scopekv.core.fetching import Demand, FetchPlan, Run, decide
from scopekv.core.speeds import PrefillCurve, TierSpeed
from scopekv.simulate.fleet.job import Job
from scopekv.simulate.fleet.memory import Memory

HOST, REMOTE = "host", "remote"
OUTER = "disk", REMOTE
Told = Callable[[str, Sequence[int], Sequence[int]], None]  # tier, new blocks, those that went


@dataclass(slots=True)
class Traffic:
    """Bytes moved, by tier."""

    read_bytes: int = 0
    written_bytes: int = 0


class Link:
    """One after another: a transfer waits for those before it."""

    __slots__ = ("free_at", "speed")

    def __init__(self, speed: TierSpeed) -> None:
        self.speed, self.free_at = speed, 0.0

    def done_at(self, now: float, size_bytes: int) -> float:
        """When a transfer that is asked for now has come."""
        begins = max(now, self.free_at)
        self.free_at = begins + size_bytes / self.speed.bytes_per_second
        return self.free_at + self.speed.latency_seconds


class Tiers:
    """The tiers of one instance, nearest first; a shared memory is in several."""

    __slots__ = ("_block_bytes", "_links", "_told", "memories", "traffic")

    def __init__(
        self,
        memories: dict[str, Memory],
        speeds: dict[str, TierSpeed],
        block_bytes: int,
        told: Told,
    ) -> None:
        self.memories = memories
        self._links = {name: Link(speeds[name]) for name in memories}
        self._block_bytes, self._told = block_bytes, told
        self.traffic = {name: Traffic() for name in memories}

    def host_end(self, names: Sequence[int], start: int) -> int:
        """The end of the run in host memory from `start` on."""
        host = self.memories.get(HOST)
        return start if host is None else host.leading(names, start)

    def plan(
        self, job: Job, engine_end: int, queue_seconds: float, curve: PrefillCurve, now: float
    ) -> FetchPlan | None:
        """Decide what to fetch after what is at hand, and begin; None where tiers have nothing.

        Sets the job's `fetched` and `ready_at`.
        """
        names, size = job.names, job.block_tokens
        start = at = self.host_end(names, engine_end)
        legs: list[tuple[str, int, int]] = []
        while at < len(names):
            for tier in OUTER:
                memory = self.memories.get(tier)
                end = at if memory is None else memory.leading(names, at)
                if end > at:
                    legs.append((tier, at, end))
                    at = end
                    break
            else:
                break
        if not legs:
            return None
        cached = min(start * size, job.input_tokens)
        demand = Demand(job.input_tokens, cached, size, self._block_bytes, queue_seconds)
        runs = [Run(self._links[tier].speed, end - begin) for tier, begin, end in legs]
        plan = decide(demand, runs, curve)
        upto = start + plan.blocks
        for tier, begin, end in legs:
            if begin < upto:
                self._fetch(job, tier, begin, min(end, upto), now)
        return plan

    def _fetch(self, job: Job, tier: str, begin: int, end: int, now: float) -> None:
        moved = (end - begin) * self._block_bytes
        self.traffic[tier].read_bytes += moved
        self.memories[tier].touch(job.names[begin:end])
        job.ready_at = max(job.ready_at, self._links[tier].done_at(now, moved))
        job.fetched.append((begin, end, tier))

    def copy_seconds(self, job: Job, begin: int, end: int, now: float) -> float:
        """Time to copy blocks from host memory into the engine; counts them."""
        moved = (end - begin) * self._block_bytes
        self.traffic[HOST].read_bytes += moved
        self.memories[HOST].touch(job.names[begin:end])
        return self._links[HOST].done_at(now, moved) - now

    def offer(self, job: Job) -> None:
        """A prompt was computed: each tier keeps what it will."""
        names, entries = job.names, job.entries
        for tier, memory in self.memories.items():
            new, gone = memory.offer(names, entries)
            self.traffic[tier].written_bytes += len(new) * self._block_bytes
            if new or gone:
                self._told(tier, new, gone)
