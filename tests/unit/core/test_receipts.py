"""Receipts: lines from answers, and that nothing but full confirmation is success (L6)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scopekv.core import receipts as core
from scopekv.core.chains import Link
from scopekv.core.receipts import WHOLE, Line, LineReason, LineState, ReceiptState
from scopekv.core.scopes import Scope, ScopeId, ScopeKind
from scopekv.errors import Corrupt

SECRET = b"s" * 32


def told(tier: str, removed: int = 0, busy: int = 0, error: str | None = None) -> dict[str, Any]:
    return {"tier": tier, "removed": removed, "busy": busy, "error": error}


def rows(lines: core.Lines) -> list[tuple[str, str, str, int, str]]:
    return [(one.instance, one.tier, one.state, one.removed, one.reason) for one in lines]


def test_one_answer_confirms_an_instance() -> None:
    lines = core.after_answer((), "a", [told("engine", 3), told("host", 2)], 1.0)
    assert rows(lines) == [("a", "engine", "done", 3, ""), ("a", "host", "done", 2, "")]
    assert core.state_of(lines, ["a"]) is ReceiptState.DONE
    assert core.state_of(lines, ["a", "b"]) is ReceiptState.PENDING, "b has not been asked"
    assert core.state_of(lines, []) is ReceiptState.PENDING, "nobody was asked"


def test_busy_is_asked_again_and_removed_adds_up() -> None:
    lines = core.after_answer((), "a", [told("engine", 3, busy=1)], 1.0)
    assert core.state_of(lines, ["a"]) is ReceiptState.PENDING
    lines = core.after_answer(lines, "a", [told("engine", 2)], 2.0)
    assert rows(lines) == [("a", "engine", "done", 5, "")]


def test_a_tier_in_trouble_is_incomplete_whatever_it_removed() -> None:
    lines = core.after_answer((), "a", [told("engine"), told("s3", 4, error="denied")], 1.0)
    assert rows(lines)[1] == ("a", "s3", "incomplete", 4, "tier_error")
    assert "denied" not in str(lines), "a store's own words stay in the engine's log"
    assert core.state_of(lines, ["a"]) is ReceiptState.INCOMPLETE
    foreign = core.after_answer((), "a", [told("engine"), told("connector", error="x")], 1.0)
    assert rows(foreign)[1][4] == LineReason.FOREIGN_CONNECTOR


def test_parts_of_a_split_purge_add_up() -> None:
    answer = [told("engine", 1, busy=1), told("engine", 2), told("s3", 1), told("s3", error="x")]
    answer += [told("valkey", error="x"), told("valkey", 1)]
    lines = core.after_answer((), "a", answer, 1.0)
    assert rows(lines) == [
        ("a", "engine", "busy", 3, ""),
        ("a", "s3", "incomplete", 1, "tier_error"),
        ("a", "valkey", "incomplete", 1, "tier_error"),
    ]


def test_silence_is_a_line_of_its_own_and_leaves_with_the_first_answer() -> None:
    lines = core.after_failure((), "a", LineReason.UNREACHABLE, 1.0)
    assert rows(lines) == [("a", WHOLE, "incomplete", 0, "unreachable")]
    lines = core.after_answer(lines, "a", [told("engine", 1)], 2.0)
    assert rows(lines) == [("a", "engine", "done", 1, "")]


def test_silence_after_an_answer_leaves_what_was_done() -> None:
    lines = core.after_answer((), "a", [told("engine", 1), told("s3", busy=1)], 1.0)
    lines = core.after_failure(lines, "a", LineReason.TIMED_OUT, 2.0)
    assert [row[2:] for row in rows(lines)] == [("done", 1, ""), ("incomplete", 0, "timed_out")]
    assert core.state_of(lines, ["a"]) is ReceiptState.INCOMPLETE
    confirmed = core.after_answer((), "a", [told("engine")], 1.0)
    again = core.after_failure(confirmed, "a", LineReason.UNREACHABLE, 2.0)
    assert not core.confirmed(again, "a"), "whoever asks again wants to know again"


def test_a_tier_that_disappears_was_memory_or_is_not_confirmed() -> None:
    lines = core.after_answer((), "a", [told("host", busy=1), told("s3", busy=1)], 1.0)
    lines = core.after_answer(lines, "a", [told("engine")], 2.0)
    assert rows(lines) == [
        ("a", "engine", "done", 0, ""),
        ("a", "s3", "incomplete", 0, "tier_gone"),
    ]
    assert core.hopeless(lines)


def test_an_instance_taken_out_of_the_configuration_stays_open_until_closed() -> None:
    lines = core.after_failure((), "old", LineReason.UNREACHABLE, 1.0)
    lines = core.after_answer(lines, "new", [told("engine")], 1.0)
    left = core.without(lines, ["new"], 2.0)
    assert rows(left)[0] == ("old", WHOLE, "incomplete", 0, "gone")
    assert core.state_of(left, ["new"]) is ReceiptState.INCOMPLETE
    assert [line.state for line in core.closed(left, 3.0)] == [LineState.CLOSED, LineState.DONE]


@pytest.mark.parametrize(
    "answer",
    [
        None,
        [],
        {},
        [1],
        [{"tier": "engine"}],
        [told("engine") | {"busy": None}],
        [told("engine") | {"removed": -1}],
        [told("engine") | {"busy": True}],
        [told("x" * 41)],
        [told(WHOLE)],
        [{"tier": "engine", "removed": 0, "busy": 0}],
    ],
)
def test_an_answer_that_says_nothing_confirms_nothing(answer: object) -> None:
    lines = core.after_answer((), "a", answer, 1.0)
    assert rows(lines) == [("a", WHOLE, "incomplete", 0, "bad_answer")]


answers = st.lists(
    st.builds(
        told,
        st.sampled_from(["engine", "host", "directory", "valkey"]),
        st.integers(0, 3),
        st.sampled_from([0, 0, 1]),
        st.sampled_from([None, None, "x"]),
    ),
    max_size=4,
)
events = st.lists(
    st.tuples(st.sampled_from("ab"), st.one_of(answers, st.sampled_from(LineReason))), max_size=8
)


@given(events)
def test_done_means_that_every_last_word_was_a_clean_answer(
    history: list[tuple[str, Any]],
) -> None:
    """L6 against a model that knows nothing of lines."""
    lines: core.Lines = ()
    clean: dict[str, bool] = {"a": False, "b": False}
    outer: set[tuple[str, str]] = set()  # tiers outside the process that are not through
    for at, (instance, word) in enumerate(history):
        if isinstance(word, LineReason):
            lines = core.after_failure(lines, instance, word, at)
            clean[instance] = False
            continue
        lines = core.after_answer(lines, instance, word, at)
        clean[instance] = bool(word) and not any(one["busy"] or one["error"] for one in word)
        for tier in ("directory", "valkey"):
            said = [one for one in word if one["tier"] == tier]
            if said and any(one["busy"] or one["error"] for one in said):
                outer.add((instance, tier))
            elif said:
                outer.discard((instance, tier))
    done = core.state_of(lines, ["a", "b"]) is ReceiptState.DONE
    assert not done or (all(clean.values()) and not outer)
    assert done or not all(clean.values()) or outer or core.hopeless(lines)


def test_every_reason_has_advice() -> None:
    assert set(core.NEXT) == set(LineReason)


def test_pairs_are_kept_and_read_back() -> None:
    link = Link(ScopeId(bytes(range(16))), 7)
    assert core.read_pair(core.name_pair(link), SECRET) == link
    owner = Scope(ScopeKind.USER, ("org_1", "usr_2"))
    assert core.read_pair(core.name_owner(owner, 3), SECRET) == Link(owner.id(SECRET), 3)


@pytest.mark.parametrize("text", ["", "zz:1", "00:1", "owner/user/a:1", "owner/king/a/b:1", "ab"])
def test_what_names_no_scope_is_corrupt(text: str) -> None:
    with pytest.raises(Corrupt):
        core.read_pair(text, SECRET)


def test_same_ignores_when() -> None:
    one = Line("a", "engine", LineState.DONE, 1, "", 1.0)
    later = Line("a", "engine", LineState.DONE, 1, "", 2.0)
    other = Line("a", "engine", LineState.DONE, 2, "", 1.0)
    assert core.same([one], [later])
    assert not core.same([one], [other])
