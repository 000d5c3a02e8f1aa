"""Causes that no pair of chats shows: what became of blocks, the template, small prompts."""

from __future__ import annotations

import pytest

from scopekv.core.explaining import (
    Certainty,
    Facts,
    Kind,
    MissCause,
    Piece,
    ReadPrompt,
    cached_tokens,
    diagnose,
)
from scopekv.core.explaining.causes import FIXES
from scopekv.errors import Misuse

BLOCK = 4


def prompt(*pieces: tuple[Kind, str, list[int]], model: str = "m") -> ReadPrompt:
    """A prompt of pieces with given tokens."""
    made, ids = [], []
    for kind, text, tokens in pieces:
        ids += tokens
        made.append(Piece(kind, "" if kind is Kind.TEMPLATE else "$.p", text, len(ids)))
    return ReadPrompt(model, tuple(made), ids)


LONG = (Kind.USER, "a long text that stays", list(range(100, 140)))


@pytest.mark.parametrize(
    ("facts", "cause", "certainty"),
    [
        (Facts(cached=0, whole_prompt=True), MissCause.ENGINE_WITHOUT_PLUGIN, "confirmed"),
        (Facts(cached=0, epoch_changed=True), MissCause.REVOKED, "confirmed"),
        (Facts(cached=0, age_seconds=9, retention_seconds=8), MissCause.EXPIRED, "confirmed"),
        (Facts(cached=0, fetch_reason="too_far"), MissCause.TIER_TOO_SLOW, "confirmed"),
        (Facts(cached=0, same_instance=False), MissCause.ROUTED_ELSEWHERE, "confirmed"),
        (Facts(cached=8), MissCause.EVICTED, "suspected"),
    ],
)
def test_what_became_of_the_callers_own_blocks(
    facts: Facts, cause: MissCause, certainty: str
) -> None:
    found = diagnose(prompt(LONG), prompt(LONG), BLOCK, facts)
    (only,) = found.causes
    assert (only.code, only.certainty) == (cause, certainty)
    assert only.tokens_lost == found.expected_tokens - (facts.cached or 0)


@pytest.mark.parametrize("cached", [36, 40, None])
def test_nothing_is_said_where_all_that_could_came(cached: int | None) -> None:
    assert diagnose(prompt(LONG), prompt(LONG), BLOCK, Facts(cached=cached)).causes == ()


def test_the_first_of_its_kind_is_cold() -> None:
    (only,) = diagnose(None, prompt(LONG), BLOCK).causes
    assert (only.code, only.tokens_lost) == (MissCause.COLD, 40)


def test_less_than_a_block_is_below_the_minimum() -> None:
    short = prompt((Kind.USER, "hi", [1, 2, 3]))
    assert [cause.code for cause in diagnose(short, short, BLOCK).causes] == [
        MissCause.BELOW_MINIMUM
    ]


def test_a_template_that_writes_the_date() -> None:
    def dated(day: str, token: int) -> ReadPrompt:
        return prompt((Kind.TEMPLATE, f"Today is {day}\n", [1, token]), LONG)

    (only,) = diagnose(dated("1 March 2026", 2), dated("2 March 2026", 3), BLOCK).causes
    assert only.code is MissCause.TEMPLATE_CHANGED
    assert (only.token, only.path) == (1, "")
    assert only.tokens_lost >= len(LONG[2]) - BLOCK


def test_another_model_shares_nothing() -> None:
    found = diagnose(prompt(LONG), prompt(LONG, model="n"), BLOCK)
    assert (found.common_tokens, found.expected_tokens) == (0, 0)
    assert [cause.code for cause in found.causes] == [MissCause.MODEL_CHANGED]


@pytest.mark.parametrize(
    ("common", "total", "expected"), [(40, 40, 36), (40, 41, 40), (3, 40, 0), (0, 1, 0), (7, 9, 4)]
)
def test_whole_blocks_and_never_the_last_token(common: int, total: int, expected: int) -> None:
    assert cached_tokens(common, total, BLOCK) == expected


def test_every_cause_says_what_to_do() -> None:
    assert FIXES.keys() == set(MissCause)
    assert set(Certainty) == {Certainty.CONFIRMED, Certainty.SUSPECTED}


def test_pieces_must_be_in_order() -> None:
    with pytest.raises(Misuse):
        ReadPrompt("m", (Piece(Kind.USER, "", "a", 3), Piece(Kind.USER, "", "b", 2)), [1, 2, 3])
