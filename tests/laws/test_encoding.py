"""Laws of the canonical encoding: one value, one spelling; one spelling, one value."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from scopekv.core.encoding import Value, decode, encode, encode_tokens
from scopekv.errors import Misuse

LAW = settings(deadline=None)
HALF = "\ud800"

texts = st.text(st.characters(exclude_categories=()), max_size=12)
scalars = st.one_of(
    st.none(),
    st.binary(max_size=12),
    texts,
    st.integers(),
    st.sampled_from([0, -1, 127, 128, -128, -129, 255, 256, 2**63, -(2**63), "", b"", HALF]),
)
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=4).map(tuple), max_leaves=8)
fields = st.lists(values, max_size=4).map(tuple)
domains = st.sampled_from(["scopekv/a/1", "scopekv/a/2", "scopekv/ab/1"])


def typed(value: Value) -> Any:
    """The value with its types: Python calls `1` and `True`, `()` and `[]` much the same."""
    if isinstance(value, (tuple, list)):
        return ("l", tuple(typed(item) for item in value))
    return (type(value).__name__, value)


@LAW
@given(domains, fields, domains, fields)
@example("scopekv/a/1", ("ab", "c"), "scopekv/a/1", ("a", "bc"))
@example("scopekv/a/1", (("a",), "b"), "scopekv/a/1", ("a", ("b",)))
@example("scopekv/a/1", (b"a",), "scopekv/a/1", ("a",))
@example("scopekv/a/1", (None,), "scopekv/a/1", ("",))
@example("scopekv/a/1", (0,), "scopekv/a/1", (b"",))
@example("scopekv/a/1", ("\ud83d\ude00",), "scopekv/a/1", ("\U0001f600",))
@example("scopekv/a/1", (), "scopekv/a/1", ((),))
def test_encoding_is_injective(
    domain: str, some: tuple[Value, ...], other_domain: str, other: tuple[Value, ...]
) -> None:
    same = (domain, typed(some)) == (other_domain, typed(other))
    assert (encode(domain, *some) == encode(other_domain, *other)) == same


@LAW
@given(domains, fields)
def test_decoding_undoes_encoding(domain: str, some: tuple[Value, ...]) -> None:
    assert typed(decode(domain, encode(domain, *some))) == typed(some)


@LAW
@given(domains, fields, st.data())
def test_every_other_spelling_is_refused(
    domain: str, some: tuple[Value, ...], data: st.DataObject
) -> None:
    """Whatever is decoded encodes to the very bytes it came from; the rest is refused."""
    good = bytearray(encode(domain, *some))
    start = data.draw(st.integers(0, len(good)))
    stop = data.draw(st.integers(start, min(len(good), start + 6)))
    good[start:stop] = data.draw(st.binary(max_size=6))
    try:
        found = decode(domain, bytes(good))
    except Misuse:
        return
    assert encode(domain, *found) == bytes(good)


@LAW
@given(domains, fields, st.binary(min_size=1, max_size=8))
def test_nothing_may_be_missing_or_follow(
    domain: str, some: tuple[Value, ...], more: bytes
) -> None:
    good = encode(domain, *some)
    for bad in (good + more, good[: -len(more)]):
        with pytest.raises(Misuse):
            decode(domain, bad)


@LAW
@given(st.binary(max_size=40))
def test_no_random_bytes_decode(junk: bytes) -> None:
    with pytest.raises(Misuse):
        decode("scopekv/a/1", junk)


@LAW
@given(domains, domains, fields)
def test_bytes_of_one_purpose_serve_no_other(
    domain: str, other: str, some: tuple[Value, ...]
) -> None:
    if domain != other:
        with pytest.raises(Misuse, match="domain"):
            decode(other, encode(domain, *some))


@LAW
@given(st.lists(st.integers(0, 2**32 - 1)), st.lists(st.integers(0, 2**32 - 1)))
def test_token_bytes_are_injective(some: list[int], other: list[int]) -> None:
    assert (encode_tokens(some) == encode_tokens(other)) == (some == other)
    assert encode_tokens(some) == b"".join(token.to_bytes(4, "little") for token in some)


@given(st.sampled_from([True, 1.5, {}, {1}, bytearray(b"x"), object()]))
def test_what_has_no_encoding_is_refused(value: Any) -> None:
    for nested in (value, [value], ((value,),)):
        with pytest.raises(Misuse, match="no encoding"):
            encode("scopekv/a/1", nested)
