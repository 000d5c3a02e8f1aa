"""The ways in which an object is changed by whoever can write to a store and holds no key."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from scopekv.core.sealing import HEADER_BYTES, TAG_BYTES

Contents = Mapping[str, bytes]  # of objects, by their names
Change = Callable[["Hand"], dict[str, bytes]]


@dataclass(frozen=True, slots=True, repr=False)
class Hand:
    """What is at hand. `mine`: objects of the prompt that will be asked for; `spare`: of another
    prompt of the same scope; `theirs`: of the same prompt under another scope."""

    mine: Contents
    spare: Contents
    theirs: Contents
    dice: random.Random


@dataclass(frozen=True, slots=True)
class Tamper:
    """One way. `change` returns what to write where; every object of the prompt is changed.

    `as_other`: the second caller asks, because its objects are changed.
    """

    name: str
    change: Change
    as_other: bool = False
    needs_other: bool = False


def _each(change: Callable[[bytearray, random.Random], bytes | bytearray]) -> Change:
    """Change each object by itself."""

    def changed(hand: Hand) -> dict[str, bytes]:
        return {
            name: bytes(change(bytearray(content), hand.dice))
            for name, content in hand.mine.items()
        }

    return changed


def _flip(low: int, high: int) -> Callable[[bytearray, random.Random], bytearray]:
    """One bit between these places; the high one from the end if it is not above 0."""

    def flipped(content: bytearray, dice: random.Random) -> bytearray:
        end = high if high > 0 else len(content) + high
        content[dice.randrange(min(low, len(content) - 1), end)] ^= 1 << dice.randrange(8)
        return content

    return flipped


def _flip_tag(content: bytearray, dice: random.Random) -> bytearray:
    content[-1 - dice.randrange(TAG_BYTES)] ^= 1 << dice.randrange(8)
    return content


def _of(others: Contents, hand: Hand) -> dict[str, bytes]:
    """The contents of `others` over mine, in turn."""
    given = list(others.values())
    return {name: given[at % len(given)] for at, name in enumerate(hand.mine)}


def _swap(hand: Hand) -> dict[str, bytes]:
    pairs = list(zip(hand.mine.items(), hand.spare.items(), strict=False))
    changed = {mine: theirs for (mine, _), (_, theirs) in pairs}
    changed |= {spare: mine for (_, mine), (spare, _) in pairs}
    return _of(hand.spare, hand) | changed


def _rotate(hand: Hand) -> dict[str, bytes]:
    """Each block in its neighbour's place; of a single one there is none, so it is cut."""
    names, contents = list(hand.mine), list(hand.mine.values())
    if len(names) < 2:
        return {name: content[:-1] for name, content in hand.mine.items()}
    return dict(zip(names, contents[1:] + contents[:1], strict=True))


def _into_theirs(hand: Hand) -> dict[str, bytes]:
    given = list(hand.mine.values())
    return {name: given[at % len(given)] for at, name in enumerate(hand.theirs)}


TAMPERS = (
    Tamper("a bit flipped in the body", _each(_flip(HEADER_BYTES, -TAG_BYTES))),
    Tamper("a bit flipped in the seal", _each(_flip_tag)),
    Tamper("a bit flipped in the header", _each(_flip(8, 20))),
    Tamper("truncated", _each(lambda content, dice: content[: dice.randrange(len(content))])),
    Tamper("bytes appended", _each(lambda content, dice: content + dice.randbytes(16))),
    Tamper("emptied", _each(lambda _content, _dice: b"")),
    Tamper("another object copied over it", lambda hand: _of(hand.spare, hand)),
    Tamper("swapped with another object", _swap),
    Tamper("blocks of one prompt rotated", _rotate),
    Tamper(
        "another scope's object of the same text copied over it",
        lambda hand: _of(hand.theirs, hand),
        needs_other=True,
    ),
    Tamper(
        "its bytes put into another scope's folder", _into_theirs, as_other=True, needs_other=True
    ),
)
