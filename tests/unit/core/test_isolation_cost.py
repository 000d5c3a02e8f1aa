"""The cost of isolation: tokens that others alone had sent, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scopekv.core import isolation_cost
from scopekv.core.encoding import encode_tokens
from scopekv.core.isolation_cost import SEVERAL, IsolationCost

BLOCK = 4
SECRET = bytes(16)
prompts = st.one_of(
    st.lists(st.integers(0, 2), min_size=1, max_size=24),
    st.lists(st.sampled_from([(0,) * BLOCK, (1,) * BLOCK]), min_size=1, max_size=9).map(
        lambda blocks: [token for block in blocks for token in block]
    ),
)


@pytest.fixture(autouse=True, scope="module")
def short_spans() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(isolation_cost, "SPAN_BLOCKS", 3)
        yield


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


@given(st.lists(st.tuples(st.sampled_from("abc"), prompts), max_size=16))
def test_spans_count_as_their_blocks_would(sent: list[tuple[str, list[int]]]) -> None:
    cost, owners = IsolationCost(SECRET), dict[tuple[int, ...], object]()
    for sender, prompt in sent:
        before = [owners.get(tuple(prompt[:e])) for e in range(BLOCK, len(prompt), BLOCK)]
        known = [*before, None].index(None)
        own = [*[one in (sender, SEVERAL) for one in before], False].index(False)
        assert cost.note(sender, encode_tokens(prompt), BLOCK, 0) == (known - own) * BLOCK
        for index, owner in enumerate(before, 1):
            now = sender if owner in (None, sender) else SEVERAL
            owners[tuple(prompt[: index * BLOCK])] = now


def test_what_was_cached_is_no_cost() -> None:
    cost, prompt = IsolationCost(SECRET), encode_tokens(range(17))
    assert cost.note("a", prompt, BLOCK, 0) == 0
    assert cost.note("b", prompt, BLOCK, 8) == 8
    assert cost.note("b", prompt, BLOCK, 0) == 0, "its own by now, however it was lost"


def test_memory_is_bounded() -> None:
    cost = IsolationCost(SECRET, blocks_max=40)
    for number in range(50):
        cost.note("a", encode_tokens([number] * 40), BLOCK, 0)
        assert len(cost) <= 40 + 9 + 3


def test_what_is_sent_again_and_again_is_not_forgotten() -> None:
    cost, kept = IsolationCost(SECRET, blocks_max=40), encode_tokens([7] * 40)
    cost.note("a", kept, BLOCK, 0)
    for number in range(1000, 1050):
        cost.note("a", encode_tokens([number] * 8), BLOCK, 0)
        assert cost.note("a", kept, BLOCK, 0) == 0
    assert cost.note("b", kept, BLOCK, 0) == 36
