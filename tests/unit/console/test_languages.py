"""Both languages are whole: each text of a page has its Korean, and each code its words."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from scopekv import console
from scopekv.console.korean import KOREAN
from scopekv.console.languages import Code, Language, language_of
from scopekv.console.words import FIXES_IN_KOREAN, WORDS
from scopekv.core.explaining.causes import FIXES, Certainty, MissCause
from scopekv.core.receipts import LineState, ReceiptState
from scopekv.core.scopes import ScopeKind
from scopekv.core.tallies import Medium
from scopekv.gateway.instances import Isolation

FOLDER = Path(console.__file__).parent
CALL = re.compile(r"""_\((?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)')""")
NAMES = re.compile(r"\{(\w+)\}")


def texts_of_pages() -> set[str]:
    found: set[str] = set()
    for path in FOLDER.glob("templates/*.j2"):
        found |= {a or b for a, b in CALL.findall(path.read_text())}
    return found


def texts_of_code() -> set[str]:
    """String constants of the package that are a key of the table or an argument of `text`."""
    found: set[str] = set()
    for path in FOLDER.glob("*.py"):
        if path.stem in ("korean", "words"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "attr", "")
                place = {"text": 0, "_done": 2}.get(name)
                if place is not None and len(node.args) > place:
                    argument = node.args[place]
                    if isinstance(argument, ast.Constant):
                        found.add(str(argument.value))
    return found


def test_every_text_has_its_korean_and_none_is_left_over() -> None:
    used = texts_of_pages() | texts_of_code()
    assert len(used) > 150
    assert used - KOREAN.keys() == set()
    assert KOREAN.keys() - used == set()


def test_what_is_filled_in_is_the_same_in_both() -> None:
    for english, korean in KOREAN.items():
        assert set(NAMES.findall(english)) == set(NAMES.findall(korean)), english
        assert korean.strip()


def test_every_code_has_its_words() -> None:
    kinds = (ScopeKind, Medium, MissCause, Certainty, Isolation, LineState, ReceiptState)
    codes = {code.value for kind in kinds for code in kind}
    codes |= {"in_use", "down", "draining", "drained", "resting", "allowed", "denied", "failed"}
    assert codes - WORDS.keys() == set()
    assert FIXES_IN_KOREAN.keys() == {cause.value for cause in FIXES}


@pytest.mark.parametrize(
    ("chosen", "accepted", "expected"),
    [
        (None, "", "en"),
        (None, "ko", "ko"),
        (None, "ko-KR,ko;q=0.9,en;q=0.8", "ko"),
        (None, "en-GB,ko;q=0.9", "en"),
        (None, "fr;q=1.0, ko;q=0.5, en;q=0.4", "ko"),
        (None, "ko;q=x, de", "en"),
        ("en", "ko", "en"),
        ("ko", "en", "ko"),
        ("xx", "ko", "ko"),
    ],
)
def test_the_language_is_the_chosen_else_the_preferred(
    chosen: str | None, accepted: str, expected: str
) -> None:
    assert language_of(chosen, accepted).code == expected


def test_durations_are_in_the_unit_that_suits_them() -> None:
    language = Language(Code.ENGLISH)
    written = [language.seconds(value) for value in (None, 0.0123, 1.25, 90, 7300)]
    assert written == ["–", "12 ms", "1.2 s", "1.5 min", "2.0 h"]
