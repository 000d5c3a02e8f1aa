"""Probing: one caller's prompts that follow another's text for long and then part from it.

Whoever guesses what others sent goes along their text and varies what comes next:

    other    0 ..... 64 ..... 128 ..... 192 ..... 256      a mark each 64 tokens, over all before it
    prober   0 ..... 64 ..... 128 ..... 192 . x            parts from it after the mark at 192

A near miss is a prompt that parts, after `PREFIX_TOKENS_MIN` or more, from text that one other
caller has sent and always went on with in the same way. None is a prompt that parts at the end of a
segment (a document and then a question), from text that many go on with (a template), or from the
caller's own (a conversation that is edited or sampled again).

Memory holds keyed digests, never tokens, and is bounded. Every mark is looked up, whatever others
sent, so the time that a look takes does not say where a prompt parts from theirs (L10).
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, NewType

from scopekv.errors import Misuse

CallerId = NewType("CallerId", bytes)
_MarkId = NewType("_MarkId", bytes)  # 8 bytes

STEP_TOKENS = 64
PREFIX_TOKENS_MIN = 2 * STEP_TOKENS
MARKS_MAX = 64  # of one prompt: what lies behind is not watched
TOKEN_BYTES = 4
MARK_BYTES = 8
PREFIXES_MAX = 32_768
CALLERS_MAX = 10_000
_OWNERS_MAX = 3  # of one prefix; with more it is a crowd's
_MANY = _MarkId(b"")  # a caller went on in different ways


class ProbeKind(StrEnum):
    """What gave a prober away."""

    POINTS = "many_prefixes"  # parts from others' texts at many places
    SIBLINGS = "many_continuations"  # tries many ways to go on after one of them


@dataclass(frozen=True, slots=True)
class ProbeLimits:
    """How many near misses within `window_seconds` are an alarm.

    `points_max`: different prefixes of others. `siblings_max`: prompts that part after the same.
    """

    points_max: int = 16
    siblings_max: int = 64
    window_seconds: float = 600.0

    def __post_init__(self) -> None:
        if not 1 <= self.points_max <= 1024 or not 1 <= self.siblings_max <= 100_000:
            raise Misuse("points_max takes 1 to 1,024, siblings_max 1 to 100,000")
        if not 1 <= self.window_seconds <= 86_400:
            raise Misuse("window_seconds takes 1 to 86,400")


class _End(NamedTuple):
    """Where a prompt ended before its next mark, and the digest of all of it."""

    tokens: int
    id: _MarkId


# Who sent a prefix, and how it went on: the next mark, the prompt's end, or `_MANY` ways. A crowd
# has no names: nobody parts from one of them alone.
_Way = _MarkId | _End
_Ways = dict[CallerId, _Way]
_CROWD: _Ways = {}


def _noted(ways: _Ways, caller: CallerId, way: _Way) -> _Ways:
    """What is known of a prefix once `caller` sent it and went on this way.

    A prompt that goes on where an earlier one ended is no second way: conversations grow.
    """
    if ways is _CROWD:
        return ways
    if caller not in ways and len(ways) >= _OWNERS_MAX:
        return _CROWD
    before = ways.get(caller)
    if before is None or isinstance(before, _End):
        ways[caller] = way
    elif way != before and not isinstance(way, _End):
        ways[caller] = _MANY
    return ways


@dataclass(slots=True)
class _Record:
    """A caller's near misses in this window: how many after each prefix."""

    began: float
    points: dict[_MarkId, int] = field(default_factory=dict)
    alarmed: bool = False


class ProbeWatch:
    """Near misses of each caller. Not thread-safe: one event loop.

    `key`: random bytes of this process, so that a mark says nothing elsewhere.
    Cost of a look: one SHA-256 pass, one look-up each 64 tokens, up to 4,096 tokens.
    """

    def __init__(
        self,
        limits: ProbeLimits,
        key: bytes,
        *,
        prefixes_max: int = PREFIXES_MAX,
        callers_max: int = CALLERS_MAX,
    ) -> None:
        if prefixes_max < MARKS_MAX or callers_max < 1:
            raise Misuse(f"a watch holds {MARKS_MAX} prefixes and 1 caller, or more")
        self._limits, self._start = limits, hashlib.sha256(key)
        self._prefixes_max, self._callers_max = prefixes_max, callers_max
        self._seen: OrderedDict[_MarkId, _Ways] = OrderedDict()
        self._callers: OrderedDict[CallerId, _Record] = OrderedDict()

    def __len__(self) -> int:
        return len(self._seen) + len(self._callers)

    def look(
        self, caller: CallerId, packed: bytes, ends: Sequence[int], now: float
    ) -> ProbeKind | None:
        """Note one prompt; return an alarm, at most one per caller and window.

        `packed`: its tokens, 4 bytes each. `ends`: of its segments but the last, in tokens.
        `now`: seconds of a monotonic clock.
        """
        marks, whole = self._marks(packed)
        seen, last = self._seen, _End(len(packed) // TOKEN_BYTES, whole)
        parted: _MarkId | None = None
        for index, mark in enumerate(marks, 1):
            way: _Way = marks[index] if index < len(marks) else last
            ways = seen.get(mark)
            if ways is None:
                seen[mark] = {caller: way}
                continue
            if len(ways) != 1 or ways.get(caller) != way:
                at = index * STEP_TOKENS
                if at >= PREFIX_TOKENS_MIN and self._parted(ways, caller, way, packed):
                    parted = None if _ends(at, ends) else mark
                seen[mark] = _noted(ways, caller, way)
            seen.move_to_end(mark)  # the least recent goes first
        while len(seen) > self._prefixes_max:
            seen.popitem(last=False)
        return None if parted is None else self._count(caller, parted, now)

    def _parted(self, ways: _Ways, caller: CallerId, way: _Way, packed: bytes) -> bool:
        """Whether one other caller went on in one way, and `way` is new, and another."""
        others = [one for owner, one in ways.items() if owner != caller]
        if ways.get(caller) == way or len(others) != 1 or others[0] in (_MANY, way):
            return False
        other, size = others[0], len(packed) // TOKEN_BYTES
        if isinstance(other, _End):
            return size > other.tokens and self._digest(packed, other.tokens) != other.id
        return not isinstance(way, _End)

    def _digest(self, packed: bytes, tokens: int) -> _MarkId:
        """Of so many tokens at the start: what lies behind the last mark is not watched."""
        state = self._start.copy()
        state.update(packed[: min(tokens, MARKS_MAX * STEP_TOKENS) * TOKEN_BYTES])
        return _MarkId(state.digest()[:MARK_BYTES])

    def _marks(self, packed: bytes) -> tuple[list[_MarkId], _MarkId]:
        """The marks of a prompt, and the digest of all that is watched of it, in one pass."""
        state, step = self._start.copy(), STEP_TOKENS * TOKEN_BYTES
        found = []
        for at in range(0, min(len(packed) - step + 1, MARKS_MAX * step), step):
            state.update(packed[at : at + step])
            found.append(_MarkId(state.digest()[:MARK_BYTES]))
        state.update(packed[len(found) * step : MARKS_MAX * step])
        return found, _MarkId(state.digest()[:MARK_BYTES])

    def _count(self, caller: CallerId, point: _MarkId, now: float) -> ProbeKind | None:
        record = self._callers.get(caller)
        if record is None or now - record.began > self._limits.window_seconds:
            record = self._callers[caller] = _Record(now)
        self._callers.move_to_end(caller)
        while len(self._callers) > self._callers_max:
            self._callers.popitem(last=False)
        if record.alarmed:
            return None
        record.points[point] = record.points.get(point, 0) + 1
        kind = None
        if len(record.points) >= self._limits.points_max:
            kind = ProbeKind.POINTS
        elif record.points[point] >= self._limits.siblings_max:
            kind = ProbeKind.SIBLINGS
        if kind is not None:
            record.alarmed = True
            record.points.clear()
        return kind


def _ends(at: int, ends: Sequence[int]) -> bool:
    """Whether a segment ends near where a prompt parts from others, between `at` and the next mark.

    Near: what a template or a habit puts between a document and a question is alike, too.
    """
    return any(at - STEP_TOKENS < end <= at + STEP_TOKENS for end in ends)
