"""Whose text each stretch of a body is, where another scope begins, and what marks it there.

    system  "PUBLIC MANUAL\n\nOrg instructions"     messages  "question"
             └ document ─┘└ org ───────────┘                   └ user ─┘
    sent    "PUBLIC MANUAL" "[s:org..]\n\n\nOrg instructions"  "[s:user..]\nquestion"

A provider's cache matches exact prefixes, so two prompts that differ in a marker share nothing from
it on. Each scope of the chain has its marker at its first text: the prefix then says all of them,
and their epochs, as a block's identity does (L1). Only a public document that was never revoked has
none, and is shared by all of a workspace.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from scopekv.core.policy import PartRole
from scopekv.core.scopes import AudienceKind, Scope
from scopekv.core.segments import Part, decide_parts
from scopekv.gateway.prompts import Caller


@dataclass(frozen=True, slots=True, repr=False)
class Piece:
    """One content of a body, in the prompt's order. `text` None: an image, a tool's use, ..."""

    role: PartRole
    text: str | None


@dataclass(frozen=True, slots=True, repr=False)
class Stretch:
    """Part of a piece. `begins`: the scope that this is the first text of, if it is one's.

    `public`: that scope is a document for everybody.
    """

    text: str | None
    begins: Scope | None = None
    public: bool = False


Cuts = Sequence[Sequence[Stretch]]  # of each piece; together they are its text


def cut(pieces: Sequence[Piece], caller: Caller) -> Cuts:
    """Return the stretches of each piece, at least one: what comes with a text without a character
    (a message's calls, say) may be a scope's first words.
    """
    found = [list(_parts(piece, caller)) for piece in pieces]
    parts = [part for piece in found for _, part in piece]
    decisions = iter(decide_parts(parts, caller.principal, caller.narrowing, caller.rules))
    chain: set[Scope] = set()
    cuts = []
    for piece in found:
        stretches: list[Stretch] = []
        for text, part in piece:
            decision = next(decisions)
            if decision.scope not in chain:
                chain.add(decision.scope)
                document = part.document if decision.allowed else None
                public = document is not None and document.audience.kind is AudienceKind.PUBLIC
                stretches.append(Stretch(text, decision.scope, public))
            elif stretches and text is not None:
                last = stretches[-1]
                stretches[-1] = Stretch((last.text or "") + text, last.begins, last.public)
            else:
                stretches.append(Stretch(text))
        cuts.append(stretches)
    return cuts


def scope_of(role: PartRole, caller: Caller) -> Scope:
    """The scope of what stands beside the text: tools, the schema of an answer."""
    decided = decide_parts([Part(role)], caller.principal, caller.narrowing, caller.rules)
    return decided[0].scope


def _parts(piece: Piece, caller: Caller) -> Iterator[tuple[str | None, Part]]:
    if not piece.text:
        yield None, Part(piece.role)
        return
    start = 0
    for match in caller.documents.matches(piece.text, caller.principal):
        yield piece.text[start : match.end], Part(piece.role, match.document)
        start = match.end
    if start < len(piece.text):
        yield piece.text[start:], Part(piece.role)
