"""Which instance gets a request: ScopeKV's own routing, and the simple choices beside it.

`Scoped` is the gateway's way over the same core: the location index fed by what instances keep and
drop, prefixes in flight, loads and speeds learned from answers, `core.routing.choose`. Events
reach it at once, a real bus takes a step of the engine; tiers are as fast as the model says, a real
gateway hears what was measured.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Protocol

from scopekv.core.events import Medium, OuterTier, OuterTiers
from scopekv.core.fetching import Run
from scopekv.core.locations import LocationIndex, Reach
from scopekv.core.prefixes import MARK_TOKENS, MARKS_MAX, PrefixesInFlight, mark_step
from scopekv.core.reservations import InstanceLoad, Outcome
from scopekv.core.routing import CROWD_FREE, CachedThere, Candidate, choose
from scopekv.core.speeds import TierSpeed
from scopekv.errors import Misuse
from scopekv.simulate.fleet.dice import draw
from scopekv.simulate.fleet.instance import ENGINE
from scopekv.simulate.fleet.job import Job
from scopekv.simulate.fleet.tiers import HOST, OUTER, REMOTE

_MEDIA = {
    ENGINE: Medium.ENGINE,
    HOST: Medium.HOST,
    "disk": Medium.DIRECTORY,
    REMOTE: Medium.VALKEY,
}
_INDEX_BYTES = 1 << 30
ROUTES = ("scopekv", "round-robin", "least-loaded", "random", "session")


class Route(Protocol):
    """Chooses, and hears what becomes of it."""

    reasons: Counter[str]

    def choose(self, job: Job, now: float) -> int:
        """The number of the instance that gets the job."""
        ...

    def changed(self, name: str, place: str, new: Sequence[int], gone: Sequence[int]) -> None: ...

    def first_token(self, job: Job, now: float) -> None: ...

    def ended(self, job: Job, now: float) -> None: ...


def make_route(name: str, instances: int, seed: int, outer: OuterTiers | None) -> Route:
    """A route by its name. `outer`: of each instance. Raises Misuse for a name that is none."""
    if name == "scopekv":
        return Scoped(instances, seed, outer)
    if name in ROUTES:
        return Simple(name, instances, seed)
    raise Misuse(f"route {name[:40]!r} is none of {', '.join(ROUTES)}")


def outer_tiers(
    speeds: Mapping[str, TierSpeed], block_tokens: int, block_bytes: int
) -> OuterTiers | None:
    """What an instance with tiers of these speeds tells of them; None without outer ones."""
    nearest = tuple(
        OuterTier(_MEDIA[tier], REMOTE.encode() if tier == REMOTE else b"", speeds[tier])
        for tier in OUTER
        if tier in speeds
    )
    return OuterTiers(block_tokens, block_bytes, nearest) if nearest else None


class Simple:
    """Choices that know nothing of what is cached."""

    def __init__(self, name: str, instances: int, seed: int) -> None:
        self.reasons: Counter[str] = Counter()
        self._name, self._dice = name, random.Random(seed)  # noqa: S311 - a simulation
        self._in_flight = [0] * instances
        self._next = -1

    def choose(self, job: Job, now: float) -> int:  # noqa: ARG002 - knows no time
        count = len(self._in_flight)
        if self._name == "round-robin":
            chosen = self._next = (self._next + 1) % count
        elif self._name == "session":
            chosen = int(draw(0, job.placed.session) * count)
        elif self._name == "random":
            chosen = self._dice.randrange(count)
        else:
            least = min(self._in_flight)
            equals = [number for number, load in enumerate(self._in_flight) if load == least]
            chosen = equals[int(self._dice.random() * len(equals))]
        self._in_flight[chosen] += 1
        self.reasons[self._name] += 1
        return chosen

    def changed(self, name: str, place: str, new: Sequence[int], gone: Sequence[int]) -> None:
        pass

    def first_token(self, job: Job, now: float) -> None:
        pass

    def ended(self, job: Job, now: float) -> None:  # noqa: ARG002
        if job.instance is not None:
            self._in_flight[job.instance.number] -= 1


class Scoped:
    """The gateway's routing."""

    def __init__(self, instances: int, seed: int, outer: OuterTiers | None = None) -> None:
        self.reasons: Counter[str] = Counter()
        self.index = LocationIndex(_INDEX_BYTES)
        self._outer = outer
        self._speeds = {tier.medium: tier.speed for tier in outer.nearest} if outer else {}
        self._names = [str(number) for number in range(instances)]
        for name in self._names:
            self.index.join(name)
            self.index.told(name, outer)
        self._loads = [InstanceLoad() for _ in self._names]
        self._in_flight = PrefixesInFlight()
        self._dice = random.Random(seed)  # noqa: S311 - breaks ties

    def choose(self, job: Job, now: float) -> int:
        job.marks = marks_of(job)
        candidates = self._candidates(job, now)
        choice = choose(candidates, job.input_tokens, self._dice.random())
        number = int(choice.name)
        job.reservation = self._loads[number].place(
            now,
            total_tokens=job.input_tokens,
            cached_tokens=choice.cached_tokens,
            prefill_seconds=choice.prefill_seconds,
            streams=True,
        )
        self._in_flight.placed(choice.name, job.marks)
        self.reasons[choice.reason] += 1
        return number

    def _candidates(self, job: Job, now: float) -> list[Candidate]:
        loads = self._loads
        if len(loads) == 1:
            return [_candidate("0", loads[0], CachedThere(0), 0, now)]
        reaches = self.index.locate(job.names, self._names, job.block_tokens)
        coming = self._in_flight.tokens(job.marks)
        hot_end = 0
        crowds: Mapping[str, int] = _NOBODY
        if sum([load.in_flight for load in loads]) >= CROWD_FREE:
            hot_end, crowds = self._in_flight.hot(job.marks, CROWD_FREE)
        own_from = hot_end + max(MARK_TOKENS, hot_end // 8)
        found = []
        theres: dict[Reach, CachedThere] = {}  # most instances have the same
        for name, load in zip(self._names, loads, strict=True):
            reach, soon = reaches[name], coming.get(name, 0)
            there = theres.get(reach)
            if there is None:
                there = theres[reach] = self._there(reach, job.block_tokens)
            if soon > there.tokens:
                there = there.with_coming(soon)
            crowd = 0 if there.tokens >= own_from else crowds.get(name, 0)
            found.append(_candidate(name, load, there, crowd, now))
        return found

    def _there(self, reach: Reach, block_tokens: int) -> CachedThere:
        tokens, outer = reach.host * block_tokens, self._outer
        if outer is None or not reach.tiers:
            return CachedThere(tokens)
        runs = tuple(Run(self._speeds[medium], chunks) for medium, chunks in reach.tiers)
        return CachedThere(tokens, runs, outer.chunk_tokens, outer.chunk_bytes)

    def changed(self, name: str, place: str, new: Sequence[int], gone: Sequence[int]) -> None:
        medium = _MEDIA[place]
        if place == REMOTE:
            name = self._names[0]  # one store of all: whoever put a block there, all have it
        if gone:
            self.index.remove(name, medium, gone)
        if new:
            self.index.add(name, medium, new)

    def first_token(self, job: Job, now: float) -> None:
        if job.reservation is not None and job.instance is not None:
            self._loads[job.instance.number].first_token(job.reservation, now)

    def ended(self, job: Job, now: float) -> None:
        if job.reservation is None or job.instance is None:
            return
        self._in_flight.ended(job.instance.name, job.marks)
        cached = min(job.cached_tokens, job.input_tokens - 1)
        outcome = Outcome(job.input_tokens, cached, job.output_tokens)
        self._loads[job.instance.number].done(job.reservation, now, outcome)


_NOBODY: dict[str, int] = {}


def _candidate(
    name: str, load: InstanceLoad, there: CachedThere, crowd: int, now: float
) -> Candidate:
    queue = load.queue_seconds(now)
    return Candidate(name, queue, load.in_flight_of_all, load.curve(), there, crowd)


def marks_of(job: Job) -> tuple[tuple[int, int], ...]:
    """The marks of a prompt, as far apart as the gateway's, at ends of whole blocks.

    The name of a block is that of the prefix up to its end.
    """
    size, names = job.block_tokens, job.names
    lasts, tokens = _mark_ends(size, job.input_tokens // size)
    return tuple(zip(tokens, [names[last] for last in lasts], strict=True))


@lru_cache(maxsize=4096)
def _mark_ends(size: int, blocks: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(index of the block, tokens up to its end) where the marks of so many whole blocks lie."""
    ends: list[int] = []
    at = 0
    for end in range(1, blocks + 1):
        step = mark_step(at)
        if end * size >= at - at % step + step and len(ends) < MARKS_MAX:
            ends.append(end)
            at = end * size
    return tuple(end - 1 for end in ends), tuple(end * size for end in ends)
