"""Where a prompt first parts from an earlier one, in the words of Anthropic's cache diagnostics.

About the two requests alone: whether the cache was hit is another question. A prompt that only
goes on parts from nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from scopekv.core.explaining.changes import tools_change
from scopekv.core.explaining.prompts import (
    Kind,
    Piece,
    ReadPrompt,
    cached_tokens,
    common_tokens,
    read_tokens,
)


class Member(StrEnum):
    """The member of a request that differs first, in the prompt's order."""

    MODEL = "model"
    TOOLS = "tools"
    SYSTEM = "system"
    MESSAGES = "messages"
    OTHER = "other"  # none of these: what the template writes around them


@dataclass(frozen=True, slots=True)
class Divergence:
    """`missed_tokens`: in whole blocks, what the later prompt could have read had it only gone on
    from the earlier one, less what both begin with."""

    member: Member
    missed_tokens: int


def divergence(earlier: ReadPrompt, later: ReadPrompt, block_size: int) -> Divergence | None:
    """Compare two prompts of one caller. None: the later one begins with all of the earlier one,
    or is itself its beginning."""
    common = common_tokens(earlier, later)
    member = _member(earlier, later, common)
    if member is None:
        return None
    total = len(later.token_ids)
    whole = cached_tokens(len(earlier.token_ids), total, block_size)
    return Divergence(member, whole - read_tokens(earlier, later, block_size))


def _member(earlier: ReadPrompt, later: ReadPrompt, common: int) -> Member | None:
    if earlier.model != later.model:
        return Member.MODEL
    end = 0
    for was, now in zip(_said(earlier), _said(later), strict=False):
        if (was.kind, was.text) != (now.kind, now.text):
            if Kind.TOOLS in (was.kind, now.kind):
                same = tools_change(earlier.tools, later.tools) is None
                return Member.OTHER if same else Member.TOOLS
            return Member.SYSTEM if Kind.SYSTEM in (was.kind, now.kind) else Member.MESSAGES
        end = now.end
    return Member.OTHER if common < end else None


def _said(prompt: ReadPrompt) -> list[Piece]:
    return [piece for piece in prompt.pieces if piece.kind is not Kind.TEMPLATE]
