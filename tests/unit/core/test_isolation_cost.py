"""The cost of isolation: tokens that others alone had sent, and nothing else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from scopekv.core.encoding import encode_tokens
from scopekv.core.isolation_cost import IsolationCost

BLOCK = 4
SECRET = bytes(16)
prompts = st.lists(st.integers(0, 2), min_size=1, max_size=24)


def reference(sent: list[tuple[str, list[int]]], sender: str, prompt: list[int]) -> int:
    """Longest whole-block prefix that anybody sent, less the longest that the sender sent."""

    def longest(of: list[list[int]]) -> int:
        ends = range(BLOCK, len(prompt), BLOCK)
        return max((e for e in ends if any(p[:e] == prompt[:e] for p in of)), default=0)

    whole = [(who, p[: (len(p) - 1) // BLOCK * BLOCK]) for who, p in sent]
    return longest([p for _, p in whole]) - longest([p for who, p in whole if who == sender])


@given(st.lists(st.tuples(st.sampled_from("ab"), prompts), max_size=12), prompts)
def test_it_is_what_others_alone_had_sent(
    sent: list[tuple[str, list[int]]], last: list[int]
) -> None:
    cost = IsolationCost(SECRET)
    for number, (sender, prompt) in enumerate([*sent, ("a", last)]):
        expected = reference(sent[:number], sender, prompt)
        assert cost.note(sender, encode_tokens(prompt), BLOCK, 0) == expected


def test_what_was_cached_is_no_cost() -> None:
    cost, prompt = IsolationCost(SECRET), encode_tokens(range(17))
    assert cost.note("a", prompt, BLOCK, 0) == 0
    assert cost.note("b", prompt, BLOCK, 8) == 8
    assert cost.note("b", prompt, BLOCK, 0) == 0, "its own by now, however it was lost"


def test_memory_is_bounded() -> None:
    cost = IsolationCost(SECRET, blocks_max=10)
    for number in range(50):
        cost.note("a", encode_tokens([number] * 40), BLOCK, 0)
        assert len(cost) <= 10
