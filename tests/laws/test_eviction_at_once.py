"""What goes at once is what would go block by block, also where an account has several lanes.

Where a block's value is its rank, a parent that ranks before its child comes before all other lanes
as well. Where it is not, another lane may have what is worth less: the chain must stop there.
"""

from __future__ import annotations

import copy

from hypothesis import given
from hypothesis import strategies as st

from scopekv.core.eviction import Entry, LearnedReuse, Recency, ScopedPolicy, Shares
from scopekv.core.runs import Rank, Run

MINE, CAPACITY = bytes(16), 60
LENT = Shares(CAPACITY, 0.0)  # no guarantee, so that none changes while blocks go one by one


class ByCost(Recency[int]):
    """By recency among what is alike; of unlike blocks, the cheaper."""

    by_use = False

    def insert(self, run: Run[int], entry: Entry[int], parent: Run[int] | None) -> None:
        super().insert(run, entry, parent)
        run.note_cost(entry)

    def value(self, run: Run[int]) -> Rank:
        return run.rate * run.size_bytes, run.used_at


def one_by_one(policy: ScopedPolicy[int], size: int) -> list[int] | None:
    """Ask for the next byte, again and again, of a copy that loses what it gives."""
    left, found = copy.deepcopy(policy), []
    while size > 0:
        before = left.used_bytes()
        victims = left.victims(1, MINE)
        if victims is None:
            return None
        (key,) = victims
        left.remove(key)
        size -= before - left.used_bytes()
        found.append(key)
    return found


blocks = st.tuples(
    st.integers(1, 3),  # how many before it is its parent
    st.sampled_from([4, 4, 7]),
    st.sampled_from([0.0, 1.0, 5.0]),
)


@given(
    made=st.lists(blocks, min_size=3, max_size=10),
    touched=st.lists(st.integers(0, 9), max_size=8),
    ask=st.integers(5, 30),
)
def test_blocks_that_go_at_once_would_go_one_by_one(
    made: list[tuple[int, int, float]], touched: list[int], ask: int
) -> None:
    policy: ScopedPolicy[int] = ScopedPolicy(LENT, ByCost())
    for key, (above, size, cost) in enumerate(made):
        parent = key - above if key >= above else None
        policy.insert(key, Entry(MINE, parent, 0, size, cost))
    for key in touched:
        policy.touch(key)
    assert policy.victims(ask, MINE) == one_by_one(policy, ask)


def test_a_chain_stops_where_another_lane_has_what_is_worth_less() -> None:
    """As learned: the parent is older than its child, and worth more than what is larger."""
    policy: ScopedPolicy[int] = ScopedPolicy(LENT, LearnedReuse(CAPACITY))
    parent, tail, large, other = range(4)
    policy.insert(parent, Entry(MINE, None, 0, 4, 5.0))
    policy.insert(tail, Entry(MINE, parent, 1, 4, 0.0))
    policy.insert(large, Entry(MINE, None, 0, 7, 1.0))
    policy.touch(parent)
    policy.insert(other, Entry(MINE, None, 0, 7, 5.0))  # time goes on
    for key in (tail, large, other):
        policy.touch(key)
    assert policy.victims(8, MINE) == one_by_one(policy, 8) == [tail, large]
