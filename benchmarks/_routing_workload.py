"""Conversations of several organisations, each user's behind its organisation's document.

The same seed gives the same texts and the same arrivals, whoever routes them. A turn's prompt is
the document, the user's session so far and a new question; replies in it are written beforehand,
so that no router's prompts depend on what an engine answered.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from scopekv.simulate.stage import text_of

BURST = 48


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How much of everything; tokens are exact to one or two.

    A user's first turn comes within `start_seconds`, each other one `pause_seconds` after the last
    and, on top, a time drawn with the mean `think_seconds`. Nobody waits for an answer.
    """

    orgs: int = 3
    users: int = 8  # of each organisation
    turns: int = 5
    document_tokens: int = 320
    question_tokens: int = 24
    reply_tokens: int = 16
    start_seconds: float = 60.0
    pause_seconds: float = 5.0
    think_seconds: float = 6.0
    seed: int = 1


@dataclass(frozen=True, slots=True)
class User:
    org: str
    name: str

    @property
    def salt(self) -> str:
        return f"{self.org}-{self.name}"


@dataclass(frozen=True, slots=True, repr=False)
class Arrival:
    """A request and when it comes, from the start of the run."""

    at_seconds: float
    user: User
    prompt: str


@dataclass(frozen=True, slots=True, repr=False)
class Workload:
    """`arrivals` in the order of time; `burst` all at once, `burst_first` alone before it."""

    shape: Shape
    documents: dict[str, str]
    users: tuple[User, ...]
    arrivals: tuple[Arrival, ...]
    warm_up: tuple[Arrival, ...]
    burst_first: Arrival
    burst: tuple[Arrival, ...]


class Texts:
    """Texts of so many tokens that no other name begins like."""

    def __init__(self, tokenizer_file: Path) -> None:
        self._tokenizer = Tokenizer.from_file(str(tokenizer_file))

    def make(self, name: str, tokens: int) -> str:
        ids = self._tokenizer.encode(text_of(name, tokens), add_special_tokens=False).ids
        return str(self._tokenizer.decode(ids[:tokens]))


def make_workload(texts: Texts, shape: Shape) -> Workload:
    """Every text and arrival of one shape."""
    dice = random.Random(shape.seed)
    orgs = [f"org-{number}" for number in range(shape.orgs)]
    documents = {org: texts.make(f"manual of {org}", shape.document_tokens) for org in orgs}
    users = tuple(User(org, f"user-{number}") for org in orgs for number in range(shape.users))
    arrivals = [
        one for user in users for one in _session(texts, shape, user, documents[user.org], dice)
    ]
    first = users[0]
    burst = [
        Arrival(0, first, f"{documents[first.org]} {texts.make(f'burst {number}', 8)}")
        for number in range(BURST + 1)
    ]
    warm_up = [
        Arrival(0, users[number % len(users)], texts.make(f"warm-up {number}", 96))
        for number in range(6)
    ]
    return Workload(
        shape,
        documents,
        users,
        tuple(sorted(arrivals, key=lambda one: one.at_seconds)),
        tuple(warm_up),
        burst[0],
        tuple(burst[1:]),
    )


def _session(
    texts: Texts, shape: Shape, user: User, document: str, dice: random.Random
) -> Iterator[Arrival]:
    at = dice.uniform(0, shape.start_seconds)
    prompt = document
    for turn in range(shape.turns):
        prompt += f"\n{texts.make(f'{turn} {user.salt} asks', shape.question_tokens)}"
        yield Arrival(at, user, prompt)
        prompt += f"\n{texts.make(f'{turn} {user.salt} reads', shape.reply_tokens)}"
        at += shape.pause_seconds + dice.expovariate(1 / shape.think_seconds)
