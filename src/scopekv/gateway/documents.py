"""Recognising published documents in prompts, by exact content at a boundary."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from scopekv.core.policy import Document, may_read
from scopekv.core.scopes import AudienceKind, Principal
from scopekv.ports import PublishedDocument

SEPARATORS = ("", "\n\n", "\n")  # between two documents in one text; any other is private text
_HEAD_CHARS = 48
_WIDTH = list(AudienceKind)


@dataclass(frozen=True, slots=True)
class Match:
    """Characters before `end` (from the last match's end) are this document's."""

    end: int
    document: Document


class DocumentIndex:
    """The documents of one registry version. Look-up cost does not grow with their number.

    One whose time is over is no match, even before the registry knows that it ended.
    """

    def __init__(
        self, documents: Iterable[PublishedDocument], *, clock: Callable[[], float] = time.time
    ) -> None:
        self._clock = clock
        self._by_head: dict[str, list[PublishedDocument]] = {}
        self._lengths: set[int] = set()
        self.documents = tuple(documents)
        for document in self.documents:
            head = document.text[:_HEAD_CHARS]
            if not head:
                continue
            self._by_head.setdefault(head, []).append(document)
            self._lengths.add(len(head))
        for same_head in self._by_head.values():
            same_head.sort(key=lambda d: (-len(d.text), _WIDTH.index(d.document.audience.kind)))

    def matches(self, text: str, principal: Principal) -> list[Match]:
        """Return the documents at the start of `text`, one after the other.

        Of equal texts, one that the principal may read, the widest audience first; the longest
        text wins. A document that the principal may not read is no match (L10).
        """
        found: list[Match] = []
        at = 0
        while True:
            step = self._next(text, at, principal, first=not found)
            if step is None:
                return found
            found.append(step)
            at = step.end

    def _next(self, text: str, at: int, principal: Principal, *, first: bool) -> Match | None:
        for separator in SEPARATORS if not first else ("",):
            if not text.startswith(separator, at):
                continue
            start = at + len(separator)
            document = self._longest(text, start, principal)
            if document is not None:
                return Match(start + len(document.text), document.document)
        return None

    def _longest(self, text: str, start: int, principal: Principal) -> PublishedDocument | None:
        best: PublishedDocument | None = None
        for length in self._lengths:
            for candidate in self._by_head.get(text[start : start + length], ()):
                if best is not None and len(candidate.text) <= len(best.text):
                    break  # longest first
                # Permission first: what others published costs no reader time that could tell.
                if (
                    may_read(principal, candidate.document)[0]
                    and text.startswith(candidate.text, start)
                    and self._clock() < _end(candidate)
                ):
                    best = candidate
                    break
        return best


def _end(document: PublishedDocument) -> float:
    return math.inf if document.expires_at is None else document.expires_at
