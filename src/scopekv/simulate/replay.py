"""A trace through one cache under an eviction policy: how many tokens it would have found."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from scopekv.core.lru import Entry, EvictionPolicy
from scopekv.errors import Misuse
from scopekv.simulate.traces import TracedRequest

ACCOUNT = b"trace"


class Walk(StrEnum):
    """In which order a request's blocks are touched and inserted, and when room is made.

    TAIL_FIRST: from the last block, and what is too much goes once all are in: so a policy that
    knows no chains lets a chain go from its tail. HEAD_FIRST: in the prompt's order, else the
    same. ONE_BY_ONE: in the prompt's order, room is made before each block, as a plain queue does.
    """

    TAIL_FIRST = "tail_first"
    HEAD_FIRST = "head_first"
    ONE_BY_ONE = "one_by_one"


@dataclass(slots=True)
class Tally:
    """Of the requests that were measured. A request that found a block or more counts as hit."""

    requests: int = 0
    requests_hit: int = 0
    input_tokens: int = 0
    hit_tokens: int = 0

    @property
    def token_hit_rate(self) -> float:
        return self.hit_tokens / self.input_tokens if self.input_tokens else 0.0

    def add(self, request: TracedRequest, blocks_hit: int) -> None:
        hit = min(blocks_hit * request.block_tokens, request.input_tokens)
        self.requests += 1
        self.requests_hit += hit > 0
        self.input_tokens += request.input_tokens
        self.hit_tokens += hit


@dataclass(slots=True)
class ReplayedCache:
    """A cache of `capacity_blocks`, whose blocks are in `policy`.

    The hit is the longest prefix that is cached, weighted by tokens; a partial last block counts
    with the tokens in it. A request is served whole even where it is larger than the cache: then
    what the policy lets go first is not kept.
    """

    policy: EvictionPolicy[int]
    capacity_blocks: int
    walk: Walk = Walk.HEAD_FIRST
    tally: Tally = field(default_factory=Tally)

    def __post_init__(self) -> None:
        if self.capacity_blocks < 1:
            raise Misuse(f"a cache holds 1 block or more, not {self.capacity_blocks}")

    def blocks_hit(self, request: TracedRequest) -> int:
        """Blocks from the first on that are cached. Changes nothing."""
        policy, hit = self.policy, 0
        for block in request.block_ids:
            if block not in policy:
                break
            hit += 1
        return hit

    def serve(self, request: TracedRequest, *, measured: bool = True) -> int:
        """Serve a request; return its hit in blocks."""
        hit = self.blocks_hit(request)
        if measured:
            self.tally.add(request, hit)
        policy, ids = self.policy, request.block_ids
        places = range(len(ids))
        for place in reversed(places) if self.walk is Walk.TAIL_FIRST else places:
            block = ids[place]
            if block in policy:
                policy.touch(block)
                continue
            if self.walk is Walk.ONE_BY_ONE:
                self._make_room(1)
            parent = ids[place - 1] if place else None
            policy.insert(block, Entry(ACCOUNT, parent, place, 1, 1.0))
        self._make_room(0)
        return hit

    def _make_room(self, blocks: int) -> None:
        excess = len(self.policy) + blocks - self.capacity_blocks
        if excess > 0:
            for victim in self.policy.victims(excess, ACCOUNT) or ():
                self.policy.remove(victim)


def replay(
    requests: Iterable[TracedRequest],
    policy: EvictionPolicy[int],
    capacity_blocks: int,
    *,
    warm_up: int = 0,
    walk: Walk = Walk.HEAD_FIRST,
) -> Tally:
    """Replay a trace; the first `warm_up` requests fill the cache and are not measured."""
    cache = ReplayedCache(policy, capacity_blocks, walk)
    for number, request in enumerate(requests):
        cache.serve(request, measured=number >= warm_up)
    return cache.tally
