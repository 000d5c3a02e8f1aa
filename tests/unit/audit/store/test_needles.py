"""What is looked for is found in each spelling, wherever it stands."""

from __future__ import annotations

import base64
import random
import struct

import msgspec
import pytest

from scopekv.audit.store.needles import Words, of_token_ids, of_words, search, spellings
from scopekv.audit.store.patterns import EXAMPLES, shown_in

SECRET = "zephyrquillon"
IDS = [1234, 8051, 977, 4410, 6022, 3001, 512, 9999]


def found(content: bytes) -> set[str]:
    return {needle.spelling for needle in search(content, of_words("a word", [SECRET]))}


@pytest.mark.parametrize("before", range(7))
def test_a_word_is_found_in_base64_whatever_stands_before_it(before: int) -> None:
    dice = random.Random(before)
    text = dice.randbytes(before) + SECRET.encode() + dice.randbytes(9)
    assert found(base64.b64encode(text)) == {f"base64+{before % 3}"}


def test_a_word_is_found_plain_in_hex_and_in_utf_16() -> None:
    raw = SECRET.encode()
    assert found(b"\x00" + raw) == {"plain"}
    assert found(raw.hex().encode()) == {"hex"}
    assert found(raw.hex().upper().encode()) == {"HEX"}
    assert found(SECRET.encode("utf-16-le")) == {"UTF-16"}
    assert found(random.Random(1).randbytes(1 << 20)) == set()


def test_bytes_that_are_no_text_are_found_in_base64url() -> None:
    key = bytes.fromhex("fbef" * 16)
    needles = spellings("a key", key)
    assert search(base64.urlsafe_b64encode(key), needles)
    assert search(key, needles)


@pytest.mark.parametrize(
    "content",
    [
        struct.pack("<8I", *IDS),
        struct.pack(">8I", *IDS),
        struct.pack("<8Q", *IDS),
        struct.pack("<8H", *IDS),
        msgspec.json.encode(IDS),
        str(IDS).encode(),
        msgspec.msgpack.encode(IDS),
        " ".join(map(str, IDS)).encode(),
    ],
)
def test_token_ids_are_found_as_programs_keep_them(content: bytes) -> None:
    needles = of_token_ids("ids", IDS)
    assert search(b"..." + content + b"...", needles)
    assert not search(struct.pack("<8I", *reversed(IDS)), needles)


def test_names_count_as_words_of_their_own() -> None:
    words = Words(("acme", "al"))
    assert words.within('org="Acme"') == [0]
    assert words.within("acme-prod") == [0]
    assert words.within("pacmeter and al") == []


def test_our_formats_are_known_and_random_bytes_are_not() -> None:
    assert all(shown_in(b"x " + example) for example in EXAMPLES)
    assert shown_in(b"prompt_token_ids: [1, 22, 333, 4444]") == {"token ids": 1}
    assert shown_in(b'"cache_salt": "' + b"0f" * 32 + b'"') == {"a salt": 1}
    assert shown_in(random.Random(2).randbytes(1 << 20)) == {}
