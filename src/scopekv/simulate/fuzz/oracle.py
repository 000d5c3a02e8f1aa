"""What is true in the world, by its own account: who may read whose text, and what was revoked.

Shares no code with what it judges. A text belongs to a label; a block belongs to the labels of
every text before its end; a reader may have it that may read each of them (L1).
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

Label = tuple[str, ...]
CONTENT_BYTES = 32
_DIGEST_BYTES = 24


@dataclass(frozen=True, slots=True)
class Text:
    """Tokens [start, end) of a prompt: whose they are, in which life of its owner."""

    label: Label
    life: int
    start: int
    end: int


@dataclass(slots=True)
class Person:
    """A user as the oracle knows it."""

    name: str
    org: str
    groups: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Paper:
    """A document as the oracle knows it: (kind, org, name) of its audience, or (public, "", "")."""

    uid: str
    audience: tuple[str, str, str]
    revision: int = 0
    withdrawn: bool = False


class Oracle:
    """Permissions and lives. A life ends when what belongs to its owner is revoked."""

    def __init__(self) -> None:
        self.people: dict[str, Person] = {}
        self.papers: dict[str, Paper] = {}
        self._lives: Counter[Label] = Counter()
        self._over: dict[Label, int] = {}  # owner -> the life from which on blocks may be read
        self._writers: list[tuple[Text, ...]] = []

    def may_read(self, person: Person, paper: Paper) -> bool:
        kind, org, name = paper.audience
        if paper.withdrawn:
            return False
        if kind == "public":
            return True
        if org != person.org:
            return False
        return kind == "org" or (name in person.groups if kind == "group" else name == person.name)

    def allowed(self, person: Person, session: str) -> frozenset[Label]:
        """Every label that this caller may read now."""
        own: list[Label] = [("org", person.org), ("user", person.name, session)]
        own += [("doc", one.uid) for one in self.papers.values() if self.may_read(person, one)]
        return frozenset(own)

    def texts(self, labels: Sequence[tuple[Label, int]]) -> tuple[Text, ...]:
        """The texts of a prompt whose parts have these labels and lengths, as of now."""
        made, at = [], 0
        for label, length in labels:
            made.append(Text(label, self._lives[_owner(label)], at, at + length))
            at += length
        return tuple(made)

    # --- lives ----------------------------------------------------------------------------------

    def end_life(self, owner: Label) -> tuple[Label, int]:
        """What was made for this owner so far is to be revoked. Give the mark to `confirmed`."""
        self._lives[owner] += 1
        return owner, self._lives[owner]

    def confirmed(self, mark: tuple[Label, int]) -> None:
        """The revocation returned success: from now on nobody reads what came before it."""
        owner, life = mark
        self._over[owner] = max(self._over.get(owner, 0), life)

    def revoked(self, texts: Sequence[Text]) -> Iterator[Label]:
        """The labels whose life is over for good."""
        for text in texts:
            if text.life < self._over.get(_owner(text.label), 0):
                yield text.label

    # --- contents -------------------------------------------------------------------------------

    def writer(self, texts: tuple[Text, ...]) -> int:
        """A new writer: whose blocks are under these texts."""
        self._writers.append(texts)
        return len(self._writers) - 1

    def content(self, writer: int, tokens: bytes) -> bytes:
        """What a writer computes for a prefix of tokens (4 bytes each). 32 bytes."""
        return _prefix_digest(tokens) + writer.to_bytes(CONTENT_BYTES - _DIGEST_BYTES, "big")

    def is_of(self, content: bytes, tokens: bytes) -> bool:
        """Whether the content was computed for exactly these tokens, by some writer."""
        return (
            len(content) == CONTENT_BYTES
            and content[:_DIGEST_BYTES] == _prefix_digest(tokens)
            and _number(content) < len(self._writers)
        )

    def origin(self, content: bytes, end: int) -> list[Text]:
        """The texts before token `end` of whoever computed this."""
        return [text for text in self._writers[_number(content)] if text.start < end]


def _owner(label: Label) -> Label:
    """Whose revocation reaches it: a user's reaches all of its sessions."""
    return label[:2]


def _number(content: bytes) -> int:
    return int.from_bytes(content[_DIGEST_BYTES:], "big")


def _prefix_digest(tokens: bytes) -> bytes:
    return hashlib.sha256(tokens).digest()[:_DIGEST_BYTES]
