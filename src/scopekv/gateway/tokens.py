"""Token ids as the gateway handles them, and the tokenizer file they come from."""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import msgspec
from tokenizers import Encoding, Tokenizer

from scopekv.core.encoding import encode_tokens
from scopekv.core.values import light_value
from scopekv.errors import Misuse

# Pre-tokenizers that scan from left to right and look ahead no further than a run of blanks.
_LOCAL = {"ByteLevel", "Digits", "Split", "Whitespace", "Punctuation"}

IN_VAIN_MAX = 50


@light_value()
class Tokens:
    """Token ids in the two forms that are needed: 4 little-endian bytes each, and JSON text."""

    packed: bytes
    json: bytes

    def __len__(self) -> int:
        return len(self.packed) // 4

    @classmethod
    def of(cls, ids: Sequence[int]) -> Tokens:
        return cls(encode_tokens(ids), msgspec.json.encode(ids)[1:-1])

    @classmethod
    def join(cls, pieces: Sequence[Tokens]) -> Tokens:
        full = [piece for piece in pieces if piece.packed]
        if len(full) == 1:
            return full[0]
        return cls(b"".join([p.packed for p in full]), b",".join([p.json for p in full]))

    def ids(self) -> list[int]:
        return list(array("I", self.packed))


@light_value()
class Stretch:
    """Characters up to `end` of a prompt, whose tokens may be kept for `owner`.

    `owner` stands for every scope up to here, so that a memo is never wider than what it holds.
    `fixed`: the stretch is a published document, so chunks may start from its tokens.
    """

    end: int
    owner: Hashable
    fixed: bool = False


def added_in(pattern: re.Pattern[str], first: str, text: str) -> Iterator[re.Match[str]]:
    """The matches of `pattern`, each of which begins with `first`, from left to right.

    To look for one letter that is rare takes a tenth of the time of looking for a pattern.
    """
    at, in_vain = text.find(first), 0
    while at >= 0:
        if in_vain == IN_VAIN_MAX or not first:
            yield from pattern.finditer(text, at)
            return
        found = pattern.match(text, at)
        if found is not None:
            yield found
        in_vain += found is None
        at = text.find(first, at + 1 if found is None else found.end())


def ends_in(encoding: Encoding, ends: Sequence[int]) -> tuple[int, ...]:
    """How many leading tokens lie wholly before each of the rising character `ends`."""
    counts, count = [], 0
    offsets = encoding.offsets if ends else []
    for end in ends:
        while count < len(offsets) and offsets[count][1] <= end:
            count += 1
        counts.append(count)
    return tuple(counts)


def common(one: Sequence[int], other: Sequence[int]) -> int:
    """Length of the common prefix."""
    for index, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return index
    return min(len(one), len(other))


def splits_locally(tokenizer: Tokenizer) -> bool:
    """Whether text may be tokenised in chunks: see the module's head."""
    parts = json.loads(tokenizer.to_str())
    pre = parts["pre_tokenizer"] or {"type": "none"}
    steps = pre["pretokenizers"] if pre["type"] == "Sequence" else [pre]
    return (
        parts["model"]["type"] == "BPE"
        and parts["normalizer"] is None
        and all(step["type"] in _LOCAL and not step.get("add_prefix_space") for step in steps)
        and not any(
            token["lstrip"] or token["rstrip"] or token["single_word"]
            for token in parts["added_tokens"]
        )
    )


def _untrimmed(part: dict[str, Any]) -> dict[str, Any]:
    return part | {"trim_offsets": False} if part.get("trim_offsets") is True else part


def load_tokenizer(text: str) -> Tokenizer:
    """Read a tokenizer.json. Raises `Misuse` where it is not one."""
    try:
        parts = json.loads(text, object_hook=_untrimmed)
        return Tokenizer.from_str(json.dumps(parts))
    except Exception as error:  # the library raises it bare
        raise Misuse(f"the engine's tokenizer cannot be read: {error}") from error
