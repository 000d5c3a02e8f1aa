"""Prefixes by name: marks along a prompt, and a bounded memory of what was sent where.

    token    0 .......... 256 .......... 512 ....... a ...... 768 ... 2048 ... 4096 .... 4608
    marks               m1             m2         m(a)      m3
                         \\ each over all tokens and all (scope, epoch) before it

A mark covers the scopes that overlap what it names, so equal tokens of two callers' own scopes
have different marks: no affinity between strangers (L4).
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, NewType

from scopekv.core.encoding import encode
from scopekv.errors import Misuse

MarkId = NewType("MarkId", bytes)  # 16 bytes

MARK_TOKENS = 256
FINE_TOKENS = 2048  # up to here; from there on marks lie an eighth of their position apart
TOKEN_BYTES = 4
MARK_BYTES = 16
MARKS_MAX = 128  # of one prompt, those of its segments' ends included


class Mark(NamedTuple):
    """The prefix of tokens [0, end) under its scopes."""

    end: int
    id: MarkId


_made = tuple.__new__  # half the cost of calling the class, of which a long prompt has many
_AnyMark = tuple[int, Hashable]  # a `Mark` is one


class Stretch(NamedTuple):
    """Tokens up to `end`, None for the rest, under this scope in this epoch."""

    end: int | None
    scope: tuple[str, ...]  # its kind and path
    epoch: int


def marks(packed: bytes, stretches: Sequence[Stretch], key: bytes) -> tuple[Mark, ...]:
    """Return the marks of a prompt of `packed` tokens (4 bytes each), in order.

    `key`: random bytes of this process, so that a mark says nothing elsewhere. A tail
    that is shorter than the distance between marks has none. Cost: one pass, about 1 GB/s.
    """
    state = hashlib.sha256(key)
    found: list[Mark] = []
    total, at = len(packed) // TOKEN_BYTES, 0
    for stretch in stretches:
        end = total if stretch.end is None else min(stretch.end, total)
        state.update(_owner(stretch.scope, stretch.epoch))
        ends = _ENDS[bisect_right(_ENDS, at) : bisect_right(_ENDS, end)]
        if stretch.end is not None and at < end and ends[-1:] != (end,):
            ends += (end,)
        for upto in ends:
            state.update(packed[at * TOKEN_BYTES : upto * TOKEN_BYTES])
            at = upto
            found.append(_made(Mark, (at, state.digest()[:MARK_BYTES])))
    return tuple(found[:MARKS_MAX])


def mark_step(at: int) -> int:
    """From one mark to the next, after token `at`: a power of two, so that marks stay aligned."""
    return MARK_TOKENS if at < FINE_TOKENS else 1 << (at.bit_length() - 4)


def _ends() -> Iterator[int]:
    at = 0
    for _ in range(MARKS_MAX):
        at += mark_step(at)
        yield at


_ENDS = tuple(_ends())  # where marks lie, but for the ends of segments


@lru_cache(maxsize=4096)
def _owner(scope: tuple[str, ...], epoch: int) -> bytes:
    return encode("scopekv/mark/1", list(scope), epoch)


class SentPrefixes:
    """Which instances were sent which prefixes of late. Bounded: the least recent goes first."""

    def __init__(self, *, marks_max: int = 65_536) -> None:
        if marks_max < 1:
            raise Misuse("a memory holds at least one mark")
        self._max = marks_max
        self._sent: OrderedDict[MarkId, frozenset[str]] = OrderedDict()
        self._sets: dict[frozenset[str], frozenset[str]] = {}  # each set once

    def __len__(self) -> int:
        return len(self._sent)

    def sent(self, name: str, prompt: Sequence[Mark]) -> None:
        """Note that an instance gets a prompt with these marks."""
        if not prompt:
            return
        alone, sent = self._one_set(frozenset((name,))), self._sent
        known = True  # whoever was not sent a prefix was not sent what goes on from it
        for _, mark_id in prompt:
            names = sent.get(mark_id) if known else None
            if names is None:
                known = False
                sent[mark_id] = alone
            elif name not in names:
                sent[mark_id] = self._one_set(names | alone)
            sent.move_to_end(mark_id)  # one whose beginning was forgotten may be there yet
        while len(sent) > self._max:
            sent.popitem(last=False)

    def _one_set(self, names: frozenset[str]) -> frozenset[str]:
        return self._sets.setdefault(names, names)

    def tokens(self, prompt: Sequence[Mark]) -> Mapping[str, int]:
        """How many leading tokens of a prompt each instance was sent; those with none are left out.

        Cost: O(marks that anybody has).
        """
        found: dict[str, int] = {}
        left: frozenset[str] | None = None
        for mark in prompt:
            names = self._sent.get(mark.id, frozenset())
            left = names if left is None else left & names
            if not left:
                break
            for name in left:
                found[name] = mark.end
        return found

    def forget(self, name: str) -> None:
        """An instance has lost its memory. Cost: one pass over everything."""
        for mark_id, names in list(self._sent.items()):
            if name in names:
                rest = names - {name}
                if rest:
                    self._sent[mark_id] = rest
                else:
                    del self._sent[mark_id]
        self._sets = {names: names for names in set(self._sent.values())}


class PrefixesInFlight:
    """How many requests in flight on each instance share a prefix. Conservation: placed - ended.

    A prompt is its marks: any name of a prefix will do that can be a key.
    """

    def __init__(self) -> None:
        self._counts: dict[Hashable, dict[str, int] | str] = {}  # just its name: one request there

    def __len__(self) -> int:
        return len(self._counts)

    def placed(self, name: str, prompt: Iterable[_AnyMark]) -> None:
        for _, mark_id in prompt:
            counts = self._counts.get(mark_id)
            if counts is None:
                self._counts[mark_id] = name
                continue
            if isinstance(counts, str):
                counts = self._counts[mark_id] = {counts: 1}
            counts[name] = counts.get(name, 0) + 1

    def ended(self, name: str, prompt: Iterable[_AnyMark]) -> None:
        """Undo one `placed` with the same arguments. Raises KeyError where there was none."""
        for _, mark_id in prompt:
            counts = self._counts[mark_id]
            if isinstance(counts, str):
                if counts != name:
                    raise KeyError(name)
                del self._counts[mark_id]
            elif counts[name] > 1:
                counts[name] -= 1
            elif len(counts) > 1:
                del counts[name]
            else:
                del self._counts[mark_id]

    def tokens(self, prompt: Sequence[_AnyMark]) -> Mapping[str, int]:
        """How many leading tokens of a prompt are on their way to each instance, or being made."""
        found: dict[str, int] = {}
        for end, mark_id in prompt:
            counts = self._counts.get(mark_id)
            if counts is None:
                break
            for name in (counts,) if isinstance(counts, str) else counts:
                found[name] = end
        return found

    def hot(self, prompt: Sequence[_AnyMark], least: int) -> tuple[int, Mapping[str, int]]:
        """The longest prefix that `least` requests in flight share: its end, and where they are."""
        for end, mark_id in reversed(prompt):
            counts = self._counts.get(mark_id)
            if isinstance(counts, str):
                if least <= 1:
                    return end, {counts: 1}
            elif counts is not None and sum(counts.values()) >= least:
                return end, counts
        return 0, {}
