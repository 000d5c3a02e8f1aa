"""Recognising published documents: exact, longest, readable, and only at a boundary."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scopekv.core.policy import Document
from scopekv.core.scopes import Audience, Principal
from scopekv.gateway.documents import DocumentIndex
from scopekv.ports import PublishedDocument

ANN = Principal("acme", "ann", "org_1", "usr_1", frozenset({"eng"}))
BOB = Principal("globex", "bob", "org_2", "usr_2")
LONG = "The handbook of everything, which is longer than any head that an index keeps. "


def published(uid: str, text: str, audience: str = "public") -> PublishedDocument:
    return PublishedDocument(Document(uid, Audience.parse(audience)), uid, text, 1, None)


def found(index: DocumentIndex, text: str, who: Principal = ANN) -> list[tuple[str, int]]:
    return [(match.document.uid, match.end) for match in index.matches(text, who)]


@pytest.mark.parametrize("more", ["", " and more", "\nWhy?", "\0", "s"])
@pytest.mark.parametrize("text", [LONG * 3, LONG, "short", "é", "🙂🙃", "\n\nblank first", " x "])
def test_a_document_is_found_at_the_start_whatever_follows(text: str, more: str) -> None:
    index = DocumentIndex([published("d", text), published("other", "something else")])
    assert found(index, text + more) == [("d", len(text))]


@pytest.mark.parametrize("text", ["", "T", LONG[:-1], " " + LONG, "\n" + LONG, LONG.upper()])
def test_nothing_but_the_exact_text_is_the_document(text: str) -> None:
    assert found(DocumentIndex([published("d", LONG)]), text) == []


def test_unicode_that_only_looks_the_same_is_not() -> None:
    index = DocumentIndex([published("composed", "caf\u00e9")])
    assert found(index, "cafe\u0301") == []
    assert found(index, "caf\u00e9") == [("composed", 4)]


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_of_documents_that_begin_alike_the_longest_wins(order: tuple[int, ...]) -> None:
    texts = [("a", LONG), ("b", LONG + "Second part."), ("c", "The")]
    index = DocumentIndex([published(*texts[i]) for i in order])
    assert found(index, LONG + "Second part. Why?") == [("b", len(LONG) + 12)]
    assert found(index, LONG + "Second") == [("a", len(LONG))]
    assert found(index, "The end") == [("c", 3)]


@pytest.mark.parametrize("order", list(permutations(range(4)))[::3])
def test_of_equal_texts_the_widest_that_may_be_read_wins(order: tuple[int, ...]) -> None:
    audiences = ["public", "org:acme", "group:acme/eng", "user:acme/ann"]
    for widest in range(4):
        listed = [published(audiences[i], LONG, audiences[i]) for i in order if i >= widest]
        assert found(DocumentIndex(listed), LONG) == [(audiences[widest], len(LONG))]


def test_what_may_not_be_read_is_invisible() -> None:
    """Neither found itself, nor in the way of a shorter or equal one that may be read (L10)."""
    index = DocumentIndex(
        [
            published("secret", LONG + "For acme only.", "org:acme"),
            published("wide", LONG),
            published("secret twin", LONG, "user:acme/ann"),
        ]
    )
    text = LONG + "For acme only. Why?"
    assert found(index, text, ANN) == [("secret", len(LONG) + 14)]
    assert found(index, text, BOB) == [("wide", len(LONG))]
    alone = DocumentIndex([published("secret", LONG, "org:acme")])
    assert found(alone, text, BOB) == []


def test_a_withdrawn_document_is_not_found() -> None:
    document = Document("d", Audience.parse("public"), withdrawn=True)
    assert found(DocumentIndex([PublishedDocument(document, "d", LONG, 1, None)]), LONG) == []


@pytest.mark.parametrize("separator", ["", "\n", "\n\n"])
def test_several_documents_in_a_row(separator: str) -> None:
    index = DocumentIndex([published("a", LONG), published("b", "Bee.", "org:acme")])
    text = separator.join([LONG, "Bee.", LONG]) + " Why?"
    ends = [len(LONG), len(LONG) + 4 + len(separator)]
    ends.append(ends[1] + len(separator) + len(LONG))
    assert found(index, text) == [("a", ends[0]), ("b", ends[1]), ("a", ends[2])]
    assert found(index, text, BOB) == [("a", ends[0])]


@pytest.mark.parametrize("separator", [" ", "\n\n\n", "\t", "\r\n", "x", "\n "])
def test_any_other_separator_is_private_text(separator: str) -> None:
    index = DocumentIndex([published("a", LONG), published("b", "Bee.")])
    assert found(index, LONG + separator + "Bee.") == [("a", len(LONG))]


def test_a_document_behind_private_text_is_not_looked_for() -> None:
    assert found(DocumentIndex([published("a", LONG)]), "Read this: " + LONG) == []


def test_an_index_of_none_or_of_an_empty_text_finds_nothing() -> None:
    assert found(DocumentIndex([]), LONG) == []
    assert found(DocumentIndex([published("d", LONG)]), "") == []


letters = st.text("ab\n", min_size=1, max_size=6)
audience = st.sampled_from(["public", "org:acme", "org:globex", "user:acme/ann"])


@settings(deadline=None)
@given(st.lists(st.tuples(letters, audience), max_size=5), st.text("ab\n", max_size=20))
def test_matches_equal_those_of_a_plain_search(listed: list[tuple[str, str]], text: str) -> None:
    """At each boundary: separators in order, then the longest readable text."""
    index = DocumentIndex([published(str(i), *one) for i, one in enumerate(listed)])
    readable = [t for t, audience in listed if "globex" not in audience]
    expected: list[int] = []
    at = 0
    while True:
        steps = [
            max((s + t for t in readable if text.startswith(s + t, at)), key=len, default="")
            for s in (("", "\n\n", "\n") if expected else ("",))
        ]
        step = next(filter(None, steps), "")
        if not step:
            break
        at += len(step)
        expected.append(at)
    assert [match.end for match in index.matches(text, ANN)] == expected
