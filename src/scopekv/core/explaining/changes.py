"""What changed between two texts that stand in the same place."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from scopekv.core.explaining.causes import MissCause
from scopekv.core.explaining.values import PATTERNS

WORDS_MAX = 4_000  # of each text that are compared word by word
SHOWN_CHARS = 80
_CONTEXT_CHARS = 40
_VALUE_CHARS = 160


@dataclass(frozen=True, slots=True, repr=False)
class Change:
    """A change within a text. `same_after`: part (0 to 1) of the later text that follows the first
    change and stays the same."""

    code: MissCause | None
    same_after: float
    before: str
    after: str


def change_of(earlier: str, later: str) -> Change:
    """What changed first between two different texts; code None: no kind that is known."""
    before, after = _cut(earlier, later)
    form = _form(earlier, later)
    if form is not None:
        start = _common(earlier, later)
        return Change(form, 1 - start / max(1, len(later)), before, after)
    return Change(_volatile(earlier, later), _same_after(earlier, later), before, after)


def tools_change(
    earlier: Sequence[Mapping[str, Any]], later: Sequence[Mapping[str, Any]]
) -> MissCause | None:
    """What changed between two lists of tools; None: nothing, to the order of their keys."""
    if json.dumps(list(map(dict, earlier))) == json.dumps(list(map(dict, later))):
        return None
    one, other = [_canonical(tool) for tool in earlier], [_canonical(tool) for tool in later]
    if one == other:
        return MissCause.TOOL_SCHEMA_ORDER
    return MissCause.TOOL_ORDER if sorted(one) == sorted(other) else MissCause.TOOLS_CHANGED


def _canonical(tool: Mapping[str, Any]) -> str:
    return json.dumps(tool, sort_keys=True, ensure_ascii=True)


def _form(earlier: str, later: str) -> MissCause | None:
    """The same text in another form."""
    if _folded(earlier) == _folded(later):
        return MissCause.UNICODE_FORM
    if earlier.split() == later.split():
        return MissCause.WHITE_SPACE
    return None


def _folded(text: str) -> str:
    """In one form, and without what does not show: joiners, direction marks, a byte order mark."""
    if text.isascii():
        return text
    plain = "".join(c for c in text if unicodedata.category(c) != "Cf")
    return unicodedata.normalize("NFKC", plain)


def _volatile(earlier: str, later: str) -> MissCause | None:
    """The kind of value that changes: found in both texts, at the place, and different."""
    start = _common(earlier, later)
    for code, pattern in PATTERNS:
        found, now = _around(pattern, earlier, start), _around(pattern, later, start)
        if found is not None and now is not None and found != now:
            return code
    return None


def _around(pattern: re.Pattern[str], text: str, place: int) -> str | None:
    """The match that covers the place, or begins within a few characters after it.

    Looked for near the place alone: over a whole text some patterns take quadratic time.
    """
    for match in pattern.finditer(text, max(0, place - _CONTEXT_CHARS), place + _VALUE_CHARS):
        if match.start() > place + 3:
            return None
        if match.end() >= place:
            return match.group()
    return None


def _same_after(earlier: str, later: str) -> float:
    """By words: what follows the first change and stands in both."""
    one, other = earlier.split()[:WORDS_MAX], later.split()[:WORDS_MAX]
    start = _common(one, other)
    matcher = SequenceMatcher(None, one[start:], other[start:], autojunk=False)
    same = sum(block.size for block in matcher.get_matching_blocks() if block.size >= _RUN_MIN)
    return same / max(1, len(other))


_RUN_MIN = 8  # words in a row that count as the same text, not as the same language


def _common(one: Sequence[Any], other: Sequence[Any]) -> int:
    for index, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return index
    return min(len(one), len(other))


def _cut(earlier: str, later: str) -> tuple[str, str]:
    """The words around the first difference, short enough to be shown."""
    start = max(0, _common(earlier, later) - SHOWN_CHARS // 4)
    return earlier[start : start + SHOWN_CHARS], later[start : start + SHOWN_CHARS]
