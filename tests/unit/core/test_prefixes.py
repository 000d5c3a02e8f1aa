"""Marks of prompts, the memory of what was sent, and prefixes in flight."""

from __future__ import annotations

import pytest

from scopekv.core.prefixes import (
    MARK_TOKENS,
    MARKS_MAX,
    Mark,
    PrefixesInFlight,
    SentPrefixes,
    Stretch,
    marks,
)

KEY = bytes(32)
ORG = ("org", "acme")


def test_marks_of_prompts_that_begin_alike_begin_alike() -> None:
    stretches = [Stretch(300, ORG, 1), Stretch(None, ("user", "acme", "alice"), 1)]
    one = marks(bytes(4 * 1000), stretches, KEY)
    other = marks(bytes(4 * 700) + b"\1" * 1200, stretches, KEY)
    assert [mark.end for mark in one] == [256, 300, 512, 768]
    assert [a.id == b.id for a, b in zip(one, other, strict=True)] == [True, True, True, False]


def test_equal_tokens_in_other_scopes_or_epochs_have_other_marks() -> None:
    tokens = bytes(4 * MARK_TOKENS)
    scopes = [("user", "acme", "alice"), ("user", "acme", "ann"), ("user", "globex", "alice")]
    found = {marks(tokens, [Stretch(None, scope, 1)], KEY) for scope in scopes}
    found.add(marks(tokens, [Stretch(None, scopes[0], 2)], KEY))
    found.add(marks(tokens, [Stretch(None, scopes[0], 1)], bytes(31) + b"x"))
    assert len(found) == 5


def test_a_prompt_of_many_segments_has_no_more_marks_than_may_be() -> None:
    stretches = [Stretch(end, ORG, end) for end in range(1, 2 * MARKS_MAX)]
    found = marks(bytes(4 * 2 * MARKS_MAX), stretches, KEY)
    assert [mark.end for mark in found] == list(range(1, MARKS_MAX + 1))


def prompt(*names: str) -> list[Mark]:
    return [
        Mark((i + 1) * MARK_TOKENS, marks(bytes(1024), [Stretch(None, (n,), 0)], KEY)[0].id)
        for i, n in enumerate(names)
    ]


def test_the_memory_of_what_was_sent_is_a_prefix_bounded_and_forgets() -> None:
    memory = SentPrefixes(marks_max=4)
    memory.sent("a", prompt("1", "2", "3"))
    memory.sent("b", prompt("1", "x"))
    assert memory.tokens(prompt("1", "2", "9")) == {"a": 512, "b": 256}
    memory.forget("a")
    assert memory.tokens(prompt("1", "2")) == {"b": 256}
    for number in range(100):
        memory.sent("a", prompt(f"n{number}"))
    assert len(memory) == 4
    assert memory.tokens(prompt("1")) == {}


def test_what_was_sent_last_is_forgotten_last_though_its_beginning_was_forgotten() -> None:
    memory = SentPrefixes(marks_max=3)
    memory.sent("a", prompt("1", "2"))
    memory.sent("a", prompt("x", "y"))  # the beginning of the first goes
    memory.sent("a", prompt("1", "2"))
    assert memory.tokens(prompt("1", "2")) == {"a": 512}
    assert memory.tokens(prompt("x", "y")) == {}


def test_prefixes_in_flight_are_counted_up_and_down() -> None:
    flight = PrefixesInFlight()
    for name in ("a", "a", "b"):
        flight.placed(name, prompt("1", "2"))
    flight.placed("b", prompt("1"))
    end, counts = flight.hot(prompt("1", "2", "3"), 3)
    assert (end, dict(counts)) == (512, {"a": 2, "b": 1})
    assert flight.hot(prompt("1", "2"), 4)[0] == 256
    assert flight.tokens(prompt("1", "2", "3")) == {"a": 512, "b": 512}
    for name in ("a", "a", "b"):
        flight.ended(name, prompt("1", "2"))
    with pytest.raises(KeyError):
        flight.ended("a", prompt("1"))  # was placed on another
    flight.ended("b", prompt("1"))
    assert len(flight) == 0
