"""What can be replayed: a trace file, or a workload that is made here from its numbers."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice

from scopekv.errors import Misuse
from scopekv.simulate.fleet.fleet import Places
from scopekv.simulate.fleet.identity import Tenant
from scopekv.simulate.fleet.shared_text import Profile, profile_of
from scopekv.simulate.fleet.synthetic import Synthetic
from scopekv.simulate.fleet.tenants import KnownTenancy, LoggedTenancy, Tenancy, TenantSpec
from scopekv.simulate.traces.hash_ids import SingleBlocks
from scopekv.simulate.traces.request import UNKNOWN, TracedRequest
from scopekv.simulate.traces.trace import Trace, TraceFormat


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests that can be gone through again and again, and who sends them.

    `tenancy`: a new one for each pass, given what was asked for and a seed. `profile`: its counts.
    `doubt`: what its reader should look at before believing a figure; empty: nothing.
    """

    name: str
    requests: Callable[[], Iterator[TracedRequest]]
    tenancy: Callable[[TenantSpec, int], Places]
    profile: Profile
    block_tokens: int
    known_tenants: bool = False
    doubt: str = ""


def from_trace(trace: Trace, limit: int | None = None) -> Workload:
    """A recorded trace. Senders are drawn where it names none. Reads it once, or twice.

    `limit`: the first so many requests. Raises Misuse for a line that is none.
    """

    def requests() -> Iterator[TracedRequest]:
        return islice(iter(trace), limit)

    orgs = users = 0

    def counted() -> Iterator[TracedRequest]:
        nonlocal orgs, users
        for request in requests():
            orgs, users = max(orgs, request.org + 1), max(users, request.user + 1)
            yield request

    try:
        profile = profile_of(counted())
    except SingleBlocks:
        return from_trace(replace(trace, layout=replace(trace.layout, chain=True)), limit)
    first = next(requests(), None)
    if first is None:
        raise Misuse(f"the trace {trace.path} has no requests")
    known = first.user != UNKNOWN

    def tenancy(spec: TenantSpec, seed: int) -> Places:
        if trace.format is TraceFormat.REQUEST_LOG:
            return LoggedTenancy(orgs, users)
        return Tenancy(spec, seed, profile, (orgs, users) if known else None)

    return Workload(trace.name, requests, tenancy, profile, first.block_tokens, known)


def _known(
    name: str,
    requests: Callable[[], Iterator[TracedRequest]],
    orgs: int,
    users: int,
    of: Callable[[int], Tenant],
) -> Workload:
    first = next(requests(), None)
    if first is None:
        raise Misuse(f"the workload {name} has no requests: it takes 1 user or more, and turns")
    profile = profile_of(requests())
    return Workload(
        name,
        requests,
        lambda _spec, _seed: KnownTenancy(orgs, users, of),
        profile,
        first.block_tokens,
        known_tenants=True,
    )


def article(users: int = 10, each: int = 10) -> Workload:
    """The worked example: a public document of 10,000 tokens, 500 private ones, one at a time.

    Every user is an organisation. Blocks of 500 tokens, so that none straddles.
    """

    def requests() -> Iterator[TracedRequest]:
        document = range(20)
        for number in range(users * each):
            ids = [*document, 1000 + number]
            yield TracedRequest(600.0 * number, 10_500, 1, 500, ids, number // each, 10_000)

    return _known("article", requests, users, users, lambda user: Tenant(user, user))


def synthetic(made: Synthetic) -> Workload:
    """Requests from fitted dice."""
    return _known("synthetic", lambda: iter(made), made.orgs, made.users, made.tenants())


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversations:
    """Conversations behind an organisation's document, as benchmarks/routing.py plays them.

    A question and a reply have one token more than said: the line break before it. Arrivals come
    from the same dice in the same order as there, so they are the same arrivals.
    """

    orgs: int = 3
    users: int = 8  # of each organisation
    turns: int = 5
    document_tokens: int = 320
    question_tokens: int = 24
    reply_tokens: int = 16
    start_seconds: float = 60.0
    pause_seconds: float = 5.0
    think_seconds: float = 6.0
    answer_tokens: int = 2
    block_tokens: int = 32
    seed: int = 1

    def __post_init__(self) -> None:
        counts = (self.orgs, self.users, self.turns, self.document_tokens, self.block_tokens)
        rest = (self.question_tokens, self.reply_tokens, self.answer_tokens)
        times = (self.start_seconds, self.pause_seconds)
        if min(counts) < 1 or min(rest) < 0 or min(times) < 0 or not self.think_seconds > 0:
            raise Misuse("conversations have counts from 1, and tokens and times from 0")

    def workload(self, name: str = "routing") -> Workload:
        users = self.orgs * self.users
        return _known(
            name,
            lambda: iter(sorted(self._requests(), key=lambda one: one.at_seconds)),
            self.orgs,
            users,
            lambda user: Tenant(user, user // self.users),
        )

    def _requests(self) -> Iterator[TracedRequest]:
        dice = random.Random(self.seed)  # noqa: S311 - arrivals
        size, whole = self.block_tokens, self.document_tokens // self.block_tokens
        for user in range(self.orgs * self.users):
            at = dice.uniform(0, self.start_seconds)
            tokens = self.document_tokens
            shared = [(user // self.users) * whole + block for block in range(whole)]
            for turn in range(self.turns):
                tokens += self.question_tokens + 1
                count = -(-tokens // size)
                own = [
                    # a block that is not full yet is another one than when it is
                    (user + 1) << 40
                    | (block << 20)
                    | (turn + 1 if (block + 1) * size > tokens else 0)
                    for block in range(whole, count)
                ]
                yield TracedRequest(
                    at,
                    tokens,
                    self.answer_tokens,
                    size,
                    shared + own,
                    user,
                    0,
                    self.document_tokens,
                )
                tokens += self.reply_tokens + 1
                at += self.pause_seconds + dice.expovariate(1 / self.think_seconds)
