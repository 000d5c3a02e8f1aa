"""What changed between two texts, where the pair is no prompt of anybody's."""

from __future__ import annotations

import pytest

from scopekv.core.explaining import MissCause
from scopekv.core.explaining.changes import change_of

RULES = "Answer in whole sentences and say where you know it from. " * 4


@pytest.mark.parametrize(
    ("earlier", "later", "code"),
    [
        ("Try 3 times before you give up.", "Try 5 times before you give up.", None),
        ("The customer is always right.", "The customer is never right.", None),
        ("If the user is rude, stay calm.", "If the user is kind, be kind.", None),
        ("Role: a lawyer for tenants.", "Role: a doctor for sheep.", None),
        ("Prices rose in market 12.", "Prices rose in market 13.", None),
        ("고객이 화를 내면 사과한다.", "고객이 기뻐하면 축하한다.", None),
        ("The user is Alice Adams.", "The user is Alice Brown.", MissCause.USER_FIELD),
        ("Updated 3 Jan 2026.", "Updated 3 Jan 2027.", MissCause.TIME),
        ("Seen at 10:15:01 pm", "Seen at 10:15:02 pm", MissCause.TIME),
        ("2026年3月4日", "2026年3月5日", MissCause.TIME),
        ("남은 토큰: 8,123", "남은 토큰: 8,001", MissCause.AGENT_NONCE),
        ("Round 2: go.", "Round 3: go.", MissCause.AGENT_NONCE),
        ("pod api-7d9f8b6c5-x2x9z", "pod api-7d9f8b6c5-k4lmn", MissCause.IDENTIFIER),
        ("See invoice no. 20817.", "See invoice no. 20818.", MissCause.IDENTIFIER),
    ],
)
def test_a_value_is_told_from_a_rule(earlier: str, later: str, code: MissCause | None) -> None:
    assert change_of(f"{earlier} {RULES}", f"{later} {RULES}").code is code


@pytest.mark.parametrize("run", ["a-", "a", "a1", "1.", "가", "x@"])
def test_hostile_texts_are_read_in_no_time_worth_speaking_of(run: str) -> None:
    text = run * 100_000  # quadratic patterns would take minutes
    assert change_of("b" + text, "c" + text).before[:1] == "b"
