"""One pool against caches of their own, and the worked example, through the replay."""

from __future__ import annotations

from pathlib import Path

import pytest

from scopekv.core.eviction import LruPolicy
from scopekv.simulate.pooling import Spread, replay_local
from scopekv.simulate.replay import Walk, replay
from scopekv.simulate.traces import TracedRequest, open_trace

TRACES = Path(__file__).parents[2] / "data" / "traces"
INSTANCES, LOCAL_BLOCKS = 10, 5859  # 3M tokens each, as in Mooncake's comparison


@pytest.mark.slow
@pytest.mark.parametrize("name", ["conversation", "synthetic"])
def test_a_pool_finds_more_than_the_same_memory_apart(name: str) -> None:
    trace = list(open_trace(TRACES / f"mooncake_{name}.jsonl.gz"))
    half = len(trace) // 2
    pooled = replay(
        trace, LruPolicy(), INSTANCES * LOCAL_BLOCKS, warm_up=half, walk=Walk.TAIL_FIRST
    ).token_hit_rate
    rates = {
        spread: replay_local(
            trace, LruPolicy, LOCAL_BLOCKS, INSTANCES, spread, warm_up=half
        ).token_hit_rate
        for spread in Spread
    }
    assert rates[Spread.RANDOM] < rates[Spread.AFFINITY]
    assert 1.5 < pooled / rates[Spread.RANDOM] < 4.0
    assert 1.5 < pooled / rates[Spread.ROUND_ROBIN] < 4.0
    assert 0.98 < pooled / rates[Spread.AFFINITY] < 1.5


def worked_example(*, per_user: bool) -> list[TracedRequest]:
    """10 users ask 10 questions each of 500 tokens about a document of 10,000 tokens."""
    document, fresh = 100, 1_000_000
    found: list[TracedRequest] = []
    for user in range(10):
        for turn in range(10):
            first = 1000 * (user + 1) if per_user else 0
            question = [fresh + 5 * (10 * user + turn) + block for block in range(5)]
            ids = [*range(first, first + document), *question]
            found.append(TracedRequest(float(len(found)), 10_500, 1, 100, ids, session=user))
    return found


@pytest.mark.parametrize(
    ("per_user", "hit", "rate"), [(True, 900_000, 0.857), (False, 990_000, 0.943)]
)
def test_the_worked_example(per_user: bool, hit: int, rate: float) -> None:
    tally = replay(worked_example(per_user=per_user), LruPolicy(), 10_000, walk=Walk.TAIL_FIRST)
    assert tally.hit_tokens == hit
    assert round(tally.token_hit_rate, 3) == rate
