"""Prompts that nobody has sent before: random letters with a blank between, about a token each."""

from __future__ import annotations

import random
import string

from scopekv.errors import Misuse

SHARED_PART = 0.95  # of a victim's prompt that the attacker knows
LETTERS_MIN = 20  # below it, a twentieth is no letter


class Letters:
    """Makes prompts of `count` letters. Never two alike while `name` is used once.

    `name` seeds the dice. A run must use a name of its own: a prompt that an earlier run sent may
    be cached, and then what is to be a miss is a hit.
    """

    def __init__(self, name: str, count: int) -> None:
        if count < LETTERS_MIN:
            raise Misuse(f"a prompt has {count} letters; it needs {LETTERS_MIN} or more")
        self._dice = random.Random(name)  # noqa: S311 - nothing secret: it must only not repeat
        self._count = count

    def fresh(self) -> str:
        """A prompt that shares no first letters with any other, but by chance."""
        return " ".join(self._dice.choices(string.ascii_lowercase, k=self._count))

    def near(self, prompt: str) -> str:
        """One that begins as `prompt`, differs at the next letter, and goes on at random."""
        known = prompt.split(" ")
        kept = int(len(known) * SHARED_PART)
        others = [letter for letter in string.ascii_lowercase if letter != known[kept]]
        rest = self._dice.choices(string.ascii_lowercase, k=len(known) - kept - 1)
        return " ".join([*known[:kept], self._dice.choice(others), *rest])
