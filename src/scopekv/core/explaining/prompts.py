"""A prompt as an explanation sees it: its tokens, and which request text each stretch is."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from scopekv.errors import Misuse


class Kind(StrEnum):
    """What a piece of a prompt is."""

    TEMPLATE = "template"
    TOOLS = "tools"
    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


@dataclass(frozen=True, slots=True, repr=False)
class Piece:
    """A stretch of a prompt. `end`: tokens up to its end; one that straddles it is beyond it."""

    kind: Kind
    path: str
    text: str
    end: int


@dataclass(frozen=True, slots=True, repr=False)
class ReadPrompt:
    """One request's prompt.

    `pieces` cover it in order. `tools`: as sent. `documents`: texts of published documents in it
    that its caller may read. `segments`: end token (None: open) and scope of each, in order; none
    where all of it is under one scope.
    """

    model: str
    pieces: tuple[Piece, ...]
    token_ids: Sequence[int]
    tools: Sequence[Mapping[str, Any]] = ()
    documents: tuple[str, ...] = ()
    segments: tuple[tuple[int | None, Hashable], ...] = ()

    def __post_init__(self) -> None:
        ends = [piece.end for piece in self.pieces]
        if ends != sorted(ends) or (ends and ends[-1] > len(self.token_ids)):
            raise Misuse("pieces must end in rising order, within the prompt's tokens")

    @property
    def contents(self) -> tuple[Piece, ...]:
        """The pieces that are the request's messages."""
        return tuple(p for p in self.pieces if p.kind not in (Kind.TEMPLATE, Kind.TOOLS))

    def index_at(self, token: int) -> int:
        """Index of the piece that holds the token; the last one beyond the end."""
        for index, piece in enumerate(self.pieces):
            if token < piece.end:
                return index
        return len(self.pieces) - 1

    def scopes_in(self, start: int, end: int) -> list[Hashable]:
        """Scopes whose segments overlap the tokens [start, end), in order."""
        found, begin = [], 0
        for until, scope in self.segments:
            if begin < end and (until is None or until > start):
                found.append(scope)
            begin = end if until is None else until
        return found

    def tokens_of(self, index: int) -> int:
        return self.pieces[index].end - (self.pieces[index - 1].end if index else 0)


def common_tokens(earlier: ReadPrompt, later: ReadPrompt) -> int:
    """Length of the common token prefix; 0 for different models."""
    if earlier.model != later.model:
        return 0
    one, other = earlier.token_ids, later.token_ids
    low, high = 0, min(len(one), len(other))
    while low < high:  # slices compare much faster than tokens one by one
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def read_tokens(earlier: ReadPrompt, later: ReadPrompt, block_size: int) -> int:
    """What an engine that has the earlier prompt reads for the later one, exact: leading blocks of
    the same tokens under the same scopes."""
    end = cached_tokens(common_tokens(earlier, later), len(later.token_ids), block_size)
    for start in range(0, end, block_size):
        scopes = (one.scopes_in(start, start + block_size) for one in (earlier, later))
        if next(scopes) != next(scopes):
            return start
    return end


def cached_tokens(common: int, prompt_tokens: int, block_size: int) -> int:
    """What an engine reads of a common prefix: whole blocks, and never a prompt's last token."""
    return min(common, prompt_tokens - 1) // block_size * block_size
