"""Sealed bytes pass, whatever a model computes does not."""

from __future__ import annotations

import random
import struct
import zlib

import pytest

from scopekv.audit.store.randomness import Judge
from scopekv.core.sealing import make_header

SIZE = 4096


def sealed(dice: random.Random) -> bytes:
    return make_header(dice.randbytes(12), SIZE) + dice.randbytes(SIZE + 16)


def test_random_bodies_pass_many_times() -> None:
    dice, judge = random.Random(3), Judge()
    assert all(judge.look(sealed(dice)) for _ in range(500))
    assert (judge.judged, judge.readable, judge.repeats, judge.nonces_twice) == (500, 0, 0, 0)
    assert abs(judge.pooled_deviate) < 6


@pytest.mark.parametrize("kind", ["floats", "bfloat16", "text", "zeros", "repeated", "compressed"])
def test_what_is_not_sealed_is_seen(kind: str) -> None:
    dice = random.Random(4)
    floats = [dice.gauss(0, 1) for _ in range(SIZE)]
    packed = struct.pack(f"<{SIZE}f", *floats)
    bodies = {
        "floats": packed[:SIZE],
        "bfloat16": b"".join(packed[at + 2 : at + 4] for at in range(0, len(packed), 4)),
        "text": b"the cache knows this text " * 200,
        "zeros": bytes(SIZE),
        "repeated": dice.randbytes(32) * 128,
        "compressed": zlib.compress(packed, 1) + b"\x00" * 200,
    }
    assert not Judge().look(bodies[kind])
    assert not Judge().look(make_header(bytes(12), SIZE) + bodies[kind])


def test_a_body_that_comes_twice_and_a_nonce_that_does_are_seen() -> None:
    dice, judge = random.Random(5), Judge()
    first = sealed(dice)
    assert judge.look(first)
    assert not judge.look(first)
    assert judge.repeats
    assert judge.nonces_twice == 1


def test_a_bias_too_small_for_one_object_shows_in_many() -> None:
    dice, judge = random.Random(6), Judge()
    for _ in range(200):
        low = bytes(byte & 0xFE for byte in dice.randbytes(SIZE // 10))
        judge.look(low + dice.randbytes(SIZE - len(low)))
    assert judge.readable == 0
    assert judge.pooled_deviate > 8


def test_short_objects_are_not_judged() -> None:
    judge = Judge()
    assert judge.look(b"short")
    assert (judge.judged, judge.too_short) == (0, 1)
