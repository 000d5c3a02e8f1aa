"""Replay of the published traces: the known figures to four digits; who holds what in small."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from scopekv.core.eviction import GreedyDual, LearnedReuse, LruPolicy, ScopedPolicy, Shares
from scopekv.core.lru import EvictionPolicy
from scopekv.errors import Misuse
from scopekv.simulate.policies import (
    ArcPolicy,
    FifoPolicy,
    Future,
    OptimalPolicy,
    S3FifoPolicy,
    fitted_policy,
)
from scopekv.simulate.replay import ReplayedCache, Tally, Walk, replay
from scopekv.simulate.traces import TracedRequest, open_trace

TRACES = Path(__file__).parents[2] / "data" / "traces"
# Tokens cached / tokens asked over the second half, after the first as warm-up; by blocks of 512.
GOLDEN = {
    "conversation": {
        3000: (0.0644, 0.0669, 0.3096),
        5859: (0.1283, 0.1367, 0.3762),
        10000: (0.1831, 0.2195, 0.3981),
        30000: (0.3042, 0.3438, 0.3981),
        50000: (0.3483, 0.3767, 0.3981),
        97656: (0.3755, 0.3918, 0.3981),
    },
    "synthetic": {
        3000: (0.2778, 0.2883, 0.5838),
        5859: (0.4418, 0.4529, 0.7197),
        10000: (0.5657, 0.6036, 0.8259),
        30000: (0.7866, 0.8378, 0.8627),
    },
}
POINTS = [(name, blocks) for name, rows in GOLDEN.items() for blocks in rows]
# In `make check`; the others take about a minute.
QUICK = {("synthetic", 5859)}


@cache
def requests(name: str) -> list[TracedRequest]:
    return list(open_trace(TRACES / f"mooncake_{name}.jsonl.gz"))


@pytest.mark.parametrize(
    ("name", "blocks"),
    [pytest.param(*p, marks=() if p in QUICK else pytest.mark.slow) for p in POINTS],
)
def test_the_published_curves(name: str, blocks: int) -> None:
    trace = requests(name)
    half = len(trace) // 2
    fifo, lru, optimal = GOLDEN[name][blocks]
    runs: list[tuple[EvictionPolicy[int], Walk, float]] = [
        (FifoPolicy(), Walk.ONE_BY_ONE, fifo),
        (LruPolicy(), Walk.TAIL_FIRST, lru),
        (OptimalPolicy(Future(trace)), Walk.HEAD_FIRST, optimal),
    ]
    for policy, walk, golden in runs:
        tally = replay(trace, policy, blocks, warm_up=half, walk=walk)
        assert round(tally.token_hit_rate, 4) == golden, type(policy).__name__


@pytest.mark.parametrize(
    ("name", "hit", "asked", "warm_up", "whole"),
    [
        ("conversation", 27_038_068, 67_915_607, 6_015, 0.3736),
        ("synthetic", 31_535_563, 36_552_394, 1_996, 0.6512),
    ],
)
def test_the_published_ceilings(
    name: str, hit: int, asked: int, warm_up: int, whole: float
) -> None:
    """A cache that never evicts: the second half, and the whole trace."""
    seen: set[int] = set()
    second, both = Tally(), Tally()
    for number, request in enumerate(requests(name)):
        found = 0
        for block in request.block_ids:
            if block not in seen:
                break
            found += 1
        both.add(request, found)
        if number >= warm_up:
            second.add(request, found)
        seen.update(request.block_ids)
    assert (second.hit_tokens, second.input_tokens) == (hit, asked)
    assert round(both.token_hit_rate, 4) == whole


@pytest.mark.slow
@pytest.mark.parametrize(("name", "least"), [("conversation", 0.12), ("synthetic", 0.28)])
def test_learned_reuse_is_better_than_lru_where_memory_is_short(name: str, least: float) -> None:
    trace, blocks = requests(name), 3000
    policy: ScopedPolicy[int] = ScopedPolicy(Shares(blocks), LearnedReuse(blocks))
    tally = replay(trace, policy, blocks, warm_up=len(trace) // 2)
    assert tally.token_hit_rate > least


def chain(*ids: int, tokens: int = 0) -> TracedRequest:
    return TracedRequest(0.0, tokens or 10 * len(ids), 1, 10, ids)


Make = Callable[[int], EvictionPolicy[int]]
POLICIES: dict[str, Make] = {
    "fifo": lambda _: FifoPolicy(),
    "lru": lambda _: LruPolicy(),
    "arc": ArcPolicy,
    "s3-fifo": S3FifoPolicy,
    "recency": lambda blocks: ScopedPolicy(Shares(blocks)),
    "gdsf": lambda blocks: ScopedPolicy(Shares(blocks), GreedyDual()),
    "learned": lambda blocks: ScopedPolicy(Shares(blocks), LearnedReuse(blocks)),
}


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("walk", Walk)
def test_no_policy_holds_more_than_fits_and_each_serves_any_request(name: str, walk: Walk) -> None:
    cache_ = ReplayedCache(POLICIES[name](8), 8, walk)
    for step in range(150):
        base = (step * 7919) % 40
        cache_.serve(chain(*range(100 * base, 100 * base + 1 + step % 12)))
        assert len(cache_.policy) <= 8
        assert cache_.policy.victims(1, b"") == cache_.policy.victims(1, b"")
    assert cache_.tally.requests == 150


def test_a_hit_ends_at_the_first_block_that_is_missing() -> None:
    cache_ = ReplayedCache(LruPolicy(), 10, Walk.TAIL_FIRST)
    assert cache_.serve(chain(1, 2, 3, tokens=25)) == 0
    assert cache_.serve(chain(1, 2, 3, tokens=25)) == 3
    assert (cache_.tally.hit_tokens, cache_.tally.input_tokens) == (25, 50)
    cache_.policy.remove(2)
    assert cache_.serve(chain(1, 2, 3)) == 1
    assert (cache_.tally.requests_hit, cache_.tally.requests) == (2, 3)


def test_arc_keeps_what_was_used_twice_from_a_scan() -> None:
    for name, kept in (("lru", 0), ("arc", 1), ("s3-fifo", 1)):
        cache_ = ReplayedCache(POLICIES[name](10), 10, Walk.TAIL_FIRST)
        for _ in range(3):
            cache_.serve(chain(1))
        for block in range(100, 140):
            cache_.serve(chain(block))
        assert cache_.blocks_hit(chain(1)) == kept, name


def test_a_cache_without_room_is_refused() -> None:
    with pytest.raises(Misuse, match="1 block or more"):
        ReplayedCache(LruPolicy(), 0)


def test_leaves_first_by_last_use_finds_what_lru_finds() -> None:
    """What the tiers use, with one account: not more than half a point below (the goal)."""
    trace, blocks = requests("synthetic")[:600], 1500
    plain = replay(trace, LruPolicy(), blocks, walk=Walk.TAIL_FIRST)
    ours = replay(trace, ScopedPolicy(Shares(blocks)), blocks)
    assert ours.token_hit_rate > plain.token_hit_rate - 0.005


def test_a_fitted_policy_knows_from_the_first_request_what_comes_again() -> None:
    """Talks whose second turn follows after more strangers than fit: LRU finds none of them."""
    turns = [
        chain(*range(1000 * talk, 1000 * talk + 2 + turn)) for talk in range(60) for turn in (0, 1)
    ]
    strangers = [chain(*range(10**6 + 100 * n, 10**6 + 100 * n + 40)) for n in range(120)]
    trace = [one for pair in zip(turns, strangers, strict=True) for one in pair]
    fitted = replay(trace[:60], fitted_policy(trace, 32), 32)
    plain = replay(trace[:60], LruPolicy(), 32, walk=Walk.TAIL_FIRST)
    assert fitted.hit_tokens > plain.hit_tokens
    assert fitted_policy(trace, 32).victims(1, b"") is None, "nothing is cached yet"
