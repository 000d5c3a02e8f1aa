"""From two prompts to the causes of a miss, largest loss first.

A change that costs less than a block says nothing: every conversation ends differently.
"""

from __future__ import annotations

from dataclasses import dataclass

from scopekv.core.explaining.causes import Cause, Certainty, MissCause
from scopekv.core.explaining.changes import SHOWN_CHARS, Change, change_of, tools_change
from scopekv.core.explaining.facts import Facts, served_less
from scopekv.core.explaining.prompts import (
    Kind,
    Piece,
    ReadPrompt,
    cached_tokens,
    common_tokens,
    read_tokens,
)

_NOT_CONTENT = {Kind.TEMPLATE, Kind.TOOLS}
_BY_KIND = {
    Kind.SYSTEM: MissCause.SYSTEM_CHANGED,
    Kind.USER: MissCause.HISTORY_EDITED,
    Kind.ASSISTANT: MissCause.HISTORY_EDITED,
    Kind.TOOL: MissCause.HISTORY_EDITED,
}


@dataclass(frozen=True, slots=True, repr=False)
class Diagnosis:
    """`common_tokens`: of both prompts. `expected_tokens`: what an engine that has the earlier one
    reads of it for the later one, exact. `causes`: largest loss first; none where all is well."""

    prompt_tokens: int
    common_tokens: int
    expected_tokens: int
    causes: tuple[Cause, ...]


def diagnose(
    earlier: ReadPrompt | None, later: ReadPrompt, block_size: int, facts: Facts | None = None
) -> Diagnosis:
    """Compare a prompt with an earlier one of the same caller, None where there is none."""
    total = len(later.token_ids)
    causes: list[Cause] = []
    if total <= block_size:
        causes.append(Cause(MissCause.BELOW_MINIMUM, Certainty.CONFIRMED, "", 0, 0))
    if earlier is None:
        if not causes:
            causes.append(Cause(MissCause.COLD, Certainty.CONFIRMED, "", 0, total))
        return Diagnosis(total, 0, 0, tuple(causes))
    common = common_tokens(earlier, later)
    expected = read_tokens(earlier, later, block_size)
    if earlier.model != later.model:
        same = cached_tokens(_same_tokens(earlier, later), total, block_size)
        causes.append(Cause(MissCause.MODEL_CHANGED, Certainty.CONFIRMED, "$.model", 0, same))
    elif not causes and common < min(len(earlier.token_ids), total):
        found = _text_cause(earlier, later, common)
        if found is not None and found.tokens_lost >= block_size:
            causes.append(found)
        elif expected == 0 and _whole_contents(later, common):
            rounding = Cause(MissCause.BLOCK_ROUNDING, Certainty.CONFIRMED, "", 0, common)
            causes.append(rounding)
    served = served_less(facts, expected) if facts is not None else None
    if served is not None:
        causes.append(served)
    causes.sort(key=lambda cause: -cause.tokens_lost)
    return Diagnosis(total, common, expected, tuple(causes))


def _text_cause(earlier: ReadPrompt, later: ReadPrompt, common: int) -> Cause | None:
    """The cause of the first difference between two prompts of one model."""
    code = tools_change(earlier.tools, later.tools)
    if code is not None:
        lost = _same_tokens(earlier, later) - common
        if lost > 0:
            before, after = _tools_shown(earlier), _tools_shown(later)
            return Cause(code, Certainty.CONFIRMED, "$.tools", common, lost, before, after)
    return _content_cause(earlier, later, common)


def _content_cause(earlier: ReadPrompt, later: ReadPrompt, common: int) -> Cause | None:
    one, other = earlier.contents, later.contents
    place = next(
        (
            i
            for i, (a, b) in enumerate(zip(one, other, strict=False))
            if a.text != b.text or a.kind != b.kind
        ),
        min(len(one), len(other)),
    )
    around = _template_cause(earlier, later, place, common)
    if around is not None:
        return around
    moved = _history_cause(earlier, later, place, common)
    if moved is not None:
        return moved
    if place < min(len(one), len(other)) and one[place].kind == other[place].kind:
        return _changed(earlier, later, place, common)
    return None


def _template_cause(
    earlier: ReadPrompt, later: ReadPrompt, place: int, common: int
) -> Cause | None:
    """The prompts part in what the template wrote before a message that both have."""
    at, was_at = later.index_at(common), earlier.index_at(common)
    here, theirs = later.pieces[at], earlier.pieces[was_at]
    if {here.kind, theirs.kind} - _NOT_CONTENT or here.text == theirs.text:
        return None
    if sum(piece.kind not in _NOT_CONTENT for piece in later.pieces[:at]) >= place:
        return None
    lost = _same_tokens(earlier, later) - common
    return _cause(MissCause.TEMPLATE_CHANGED, here, common, lost, change_of(theirs.text, here.text))


def _changed(earlier: ReadPrompt, later: ReadPrompt, place: int, common: int) -> Cause | None:
    """The text of one message changed."""
    was, now = earlier.contents[place], later.contents[place]
    change = change_of(was.text, now.text)
    inside = round(change.same_after * later.tokens_of(later.pieces.index(now)))
    lost = inside + _equal_after(earlier, later, place + 1, place + 1)
    last = place == len(later.contents) - 1 or place == len(earlier.contents) - 1
    code = change.code
    if code is None and last and now.kind is Kind.USER:
        code = MissCause.PRIVATE_FIRST
        known = any(text in now.text and text in was.text for text in later.documents)
        certainty = Certainty.CONFIRMED if known else Certainty.SUSPECTED
        return _cause(code, now, common, lost, change, certainty)
    return _cause(code or _BY_KIND[now.kind], now, common, lost, change)


def _history_cause(earlier: ReadPrompt, later: ReadPrompt, place: int, common: int) -> Cause | None:
    """Messages were taken out, replaced by fewer, or put in before others."""
    one, other = earlier.contents, later.contents
    if place >= len(other) or place >= len(one):
        return None
    dropped = _run_found(one, other, place + 1, place)
    if dropped:
        lost = _equal_after(earlier, later, dropped, place)
        return _shown(MissCause.HISTORY_DROPPED, one[place], other[place], common, lost)
    replaced = _run_found(one, other, place + 2, place + 1)
    if replaced:
        lost = _equal_after(earlier, later, replaced, place + 1)
        return _shown(MissCause.HISTORY_SUMMARISED, one[place], other[place], common, lost)
    for ahead in (1, 2):
        if _same(one[place : place + 1], other[place + ahead : place + ahead + 1]):
            lost = _equal_after(earlier, later, place, place + ahead)
            private = other[place].kind is Kind.USER and place == 0
            code = MissCause.PRIVATE_FIRST if private else _BY_KIND[other[place].kind]
            return _shown(code, one[place], other[place], common, lost)
    return None


def _run_found(one: tuple[Piece, ...], other: tuple[Piece, ...], first: int, at: int) -> int:
    """Where in `one`, from `first` on, the messages of `other` from `at` on go on; 0: nowhere."""
    if at >= len(other):
        return 0
    length = min(2, len(other) - at)
    for start in range(first, len(one)):
        run = min(length, len(one) - start)
        if _same(one[start : start + run], other[at : at + run]):
            return start
    return 0


def _same(one: tuple[Piece, ...], other: tuple[Piece, ...]) -> bool:
    return bool(one) and [(p.kind, p.text) for p in one] == [(p.kind, p.text) for p in other]


def _equal_after(earlier: ReadPrompt, later: ReadPrompt, start: int, at: int) -> int:
    """Tokens of the later prompt's messages from `at` on that equal the earlier's from `start`."""
    tokens = 0
    for was, now in zip(earlier.contents[start:], later.contents[at:], strict=False):
        if (was.kind, was.text) != (now.kind, now.text):
            break
        tokens += later.tokens_of(later.pieces.index(now))
    return tokens


def _same_tokens(earlier: ReadPrompt, later: ReadPrompt) -> int:
    """End, in the later prompt, of the leading messages that both have."""
    end = 0
    for was, now in zip(earlier.contents, later.contents, strict=False):
        if (was.kind, was.text) != (now.kind, now.text):
            break
        end = now.end
    return end


def _whole_contents(later: ReadPrompt, common: int) -> bool:
    """Whether the common part holds a whole message of the request."""
    return any(0 < piece.end <= common and piece.text for piece in later.contents)


def _tools_shown(prompt: ReadPrompt) -> str:
    names = [str((tool.get("function") or tool).get("name")) for tool in prompt.tools]
    return ", ".join(names)[:SHOWN_CHARS]


def _cause(
    code: MissCause,
    piece: Piece,
    token: int,
    lost: int,
    change: Change,
    certainty: Certainty = Certainty.CONFIRMED,
) -> Cause:
    return Cause(code, certainty, piece.path, token, max(0, lost), change.before, change.after)


def _shown(code: MissCause, was: Piece, now: Piece, token: int, lost: int) -> Cause:
    before, after = was.text[:SHOWN_CHARS], now.text[:SHOWN_CHARS]
    return Cause(code, Certainty.CONFIRMED, now.path, token, lost, before, after)
