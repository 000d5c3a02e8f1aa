"""Prompts of a timing audit: new ones, and near ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scopekv.audit.timing.prompts import LETTERS_MIN, Letters
from scopekv.errors import Misuse

counts = st.integers(LETTERS_MIN, 400)


def _shared(one: str, other: str) -> int:
    """How many letters two prompts begin with alike."""
    pairs = zip(one.split(" "), other.split(" "), strict=True)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), len(one.split(" ")))


@given(counts, st.text(max_size=8))
def test_a_near_prompt_shares_a_part_and_differs_at_the_next_letter(count: int, name: str) -> None:
    letters = Letters(name, count)
    sent = letters.fresh()
    near = letters.near(sent)
    assert len(near.split(" ")) == len(sent.split(" ")) == count
    assert _shared(sent, near) == int(count * 0.95)


def test_no_two_prompts_of_a_run_begin_alike_nor_those_of_two_runs() -> None:
    runs = [Letters("1:a", 64), Letters("1:b", 64)]
    prompts = [run.fresh() for run in runs for _ in range(500)]
    heads = {prompt[:32] for prompt in prompts}
    assert len(heads) == len(prompts)
    assert Letters("1:a", 64).fresh() == prompts[0]


def test_a_prompt_too_short_to_have_a_twentieth_is_misuse() -> None:
    with pytest.raises(Misuse):
        Letters("x", LETTERS_MIN - 1)
