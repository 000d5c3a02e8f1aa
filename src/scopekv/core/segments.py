"""Segments: the token ranges of a prompt and the scope of each.

    token   0            a              b            n
            | document   | instructions | question   | answer ...
            [0, a) doc   [a, b) org     [b, open) user

Ranges are half open, in order, without gaps. The last one is open and always the caller's own
narrowest scope, so that whatever the engine adds or narrows belongs to the caller alone.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from scopekv.core.policy import Decision, Document, PartRole, RoleRules, decide
from scopekv.core.scopes import Narrowing, Principal, Scope, private_scope

SEGMENTS_MAX = 32


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of a prompt: whose text it is. `document`: it equals this published document."""

    role: PartRole
    document: Document | None = None


@dataclass(frozen=True, slots=True)
class Segment:
    """Tokens [start, end) under one scope; `end` is None for the open last one."""

    start: int
    end: int | None
    scope: Scope


@dataclass(frozen=True, slots=True)
class Decided:
    """Parts, and what was decided on each.

    `owners`: for each part, and for the caller's own text behind them, the names of all scopes up
    to there: what a memo of its tokens may be kept for. `documents`: whether it is one as allowed.
    """

    parts: Sequence[Part]
    scopes: tuple[Scope, ...]
    documents: tuple[bool, ...]
    owners: tuple[tuple[Hashable, ...], ...]


def decided(
    parts: Sequence[Part], principal: Principal, narrowing: Narrowing, rules: RoleRules
) -> Decided:
    """Return the decisions on the parts of one prompt, as its tokenizer takes them."""
    decisions = decide_parts(parts, principal, narrowing, rules)
    scopes = tuple([decision.scope for decision in decisions])
    owners: list[tuple[Hashable, ...]] = []
    for scope in (*scopes, private_scope(principal, narrowing)):
        name = (scope.kind.value, scope.path)  # as plain values: memos hash it many times
        chain = owners[-1] if owners else ()
        owners.append(chain if name in chain else (*chain, name))
    pairs = zip(parts, decisions, strict=True)
    documents = tuple([one.allowed and part.document is not None for part, one in pairs])
    return Decided(parts, scopes, documents, tuple(owners))


def decide_parts(
    parts: Iterable[Part], principal: Principal, narrowing: Narrowing, rules: RoleRules
) -> tuple[Decision, ...]:
    """Return the decision on each part, in order. Nothing but a document widens after private."""
    private = private_scope(principal, narrowing)
    decisions: list[Decision] = []
    private_before = False
    for part in parts:
        decision = decide(
            principal, narrowing, rules, part.role, part.document, private_before=private_before
        )
        private_before = private_before or decision.scope == private
        decisions.append(decision)
    return tuple(decisions)


def plan_segments(
    scopes: Sequence[Scope], ends: Sequence[int], private: Scope
) -> tuple[Segment, ...]:
    """Return the segments of a prompt whose parts have these scopes and (exclusive) token ends.

    Neighbours of one scope are one segment. At most `SEGMENTS_MAX`: what is beyond, and all from a
    part on that got no whole token of its own, belongs to the caller alone.
    """
    segments: list[Segment] = []
    start = 0
    for scope, end in zip(scopes, ends, strict=True):
        if end <= start:
            break  # its text sits in a neighbour's token: no neighbour may be wider
        if segments and segments[-1].scope == scope:
            segments[-1] = Segment(segments[-1].start, end, scope)
        elif len(segments) < SEGMENTS_MAX - 1:
            segments.append(Segment(start, end, scope))
        else:
            break
        start = end
    while segments and segments[-1].scope == private:
        start = segments.pop().start
    return (*segments, Segment(start, None, private))
