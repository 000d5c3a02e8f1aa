"""The one maker of bytes that get hashed, MACed, signed or bound.

Every value is tagged with its type and prefixed with its length, so no two inputs share an
encoding (law: test_encoding_is_injective) and every encoding has one spelling:

    value   := tag(1) length(4, big endian) payload(length)
    payload := bytes | UTF-8 | big-endian signed integer, shortest form | value*
    tag     := b"b" bytes, b"s" str, b"i" int, b"n" None, b"l" sequence

A message is the sequence (domain, field, ...); the domain names what the bytes are for, so
that bytes made for one purpose never verify for another.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Sequence
from typing import TypeAlias

from scopekv.errors import Misuse

Value: TypeAlias = "bytes | str | int | Sequence[Value] | None"

_HEAD = struct.Struct(">cI")
_DEPTH_MAX = 8


def encode(domain: str, *fields: Value) -> bytes:
    """Return the one encoding of `fields` for the purpose `domain`.

    Raises `Misuse` for a type without an encoding (bool, float, dict). Cost: one pass.
    """
    return _value((domain, *fields), 0)


def decode(domain: str, data: bytes) -> tuple[Value, ...]:
    """Return the fields that `encode(domain, *fields)` made `data` from; lists come as tuples.

    Raises `Misuse` unless `data` is exactly that one encoding: truncated, trailing, of another
    domain, or in another spelling of the same value.
    """
    value, end = _parse(data, 0, 0)
    if end != len(data):
        raise Misuse(f"encoding has {len(data) - end} bytes after its end")
    if not isinstance(value, tuple) or not value or value[0] != domain:
        raise Misuse(f"encoding is not of the domain {domain!r}")
    return value[1:]


def _value(value: Value, depth: int) -> bytes:
    if depth > _DEPTH_MAX:
        raise Misuse(f"encoding is nested deeper than {_DEPTH_MAX}")
    if isinstance(value, bytes):
        return _HEAD.pack(b"b", len(value)) + value
    if isinstance(value, str):
        text = value.encode("utf-8", "surrogatepass")
        return _HEAD.pack(b"s", len(text)) + text
    if value is None:
        return _HEAD.pack(b"n", 0)
    if isinstance(value, bool):
        raise Misuse("a bool has no encoding: use an int or a word")
    if isinstance(value, int):
        number = value.to_bytes(_int_size(value), "big", signed=True)
        return _HEAD.pack(b"i", len(number)) + number
    if isinstance(value, (tuple, list)):
        inner = b"".join([_value(item, depth + 1) for item in value])
        return _HEAD.pack(b"l", len(inner)) + inner
    raise Misuse(f"a {type(value).__name__} has no encoding")


def _int_size(value: int) -> int:
    """Bytes of the shortest two's complement form; zero has none."""
    return 0 if value == 0 else ((value if value >= 0 else ~value).bit_length() + 8) // 8


def _parse(data: bytes, at: int, depth: int) -> tuple[Value, int]:
    if depth > _DEPTH_MAX:
        raise Misuse(f"encoding is nested deeper than {_DEPTH_MAX}")
    if at + _HEAD.size > len(data):
        raise Misuse("encoding is cut short")
    tag, length = _HEAD.unpack_from(data, at)
    start = at + _HEAD.size
    end = start + length
    if end > len(data):
        raise Misuse("encoding is cut short")
    if tag == b"l":
        items: list[Value] = []
        position = start
        while position < end:
            item, position = _parse(data, position, depth + 1)
            items.append(item)
        if position != end:
            raise Misuse("a sequence ends inside one of its items")
        return tuple(items), end
    return _scalar(tag, data[start:end]), end


def _scalar(tag: bytes, payload: bytes) -> bytes | str | int | None:
    if tag == b"b":
        return payload
    if tag == b"s":
        try:
            return payload.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise Misuse("encoded text is not UTF-8") from error
    if tag == b"i":
        number = int.from_bytes(payload, "big", signed=True)
        if len(payload) != _int_size(number):
            raise Misuse("encoded integer is not in its shortest form")
        return number
    if tag == b"n" and not payload:
        return None
    raise Misuse(f"unknown tag {tag!r} in encoding")


def encode_tokens(token_ids: Sequence[int]) -> bytes:
    """Return token ids as 4 little-endian bytes each: what prefix digests are taken over.

    Of fixed width, so no separator is needed. Raises `Misuse` for an id outside 0 to 2**32-1.
    Cost: about 0.1 ms for 10,000 ids.
    """
    try:
        words = array("I", token_ids)
    except (OverflowError, TypeError) as error:
        raise Misuse("a token id is not an integer from 0 to 2**32-1") from error
    if sys.byteorder == "big":
        words.byteswap()
    return words.tobytes()
