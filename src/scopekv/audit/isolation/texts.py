"""Prompts that nobody has sent before: letters apart, about one token each in any tokenizer."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from scopekv.audit.endpoint import COMPLETIONS, MESSAGES, RESPONSES

LETTERS = "abcdefghijklmnopqrstuvwxyz"
TAIL_LETTERS = 12
SPARE_LETTERS = 12  # so that a text still fills its blocks where a template stands before it


@dataclass(frozen=True, slots=True, repr=False)
class Prompt:
    """`head` is the text in question, and stands first; `tail` follows in a text of its own.

    `system`: the head is a chat's system message.
    """

    endpoint: str
    model: str
    head: str
    tail: str
    system: bool = False

    def body(self) -> dict[str, Any]:
        """The request: one token of answer, so that reading the prompt is all the work."""
        model = {"model": self.model, "temperature": 0}
        text = self.tail if self.system else f"{self.head}\n\n{self.tail}"
        if self.endpoint == COMPLETIONS:
            return model | {"max_tokens": 1, "prompt": text}
        user = [{"role": "user", "content": text}]
        if self.endpoint == MESSAGES:
            system = {"system": self.head} if self.system else {}
            return model | {"max_tokens": 1, "messages": user, **system}
        before = [{"role": "system", "content": self.head}] if self.system else []
        if self.endpoint == RESPONSES:
            return model | {"max_output_tokens": 1, "input": [*before, *user]}
        return model | {"max_tokens": 1, "messages": [*before, *user]}


class Texts:
    """Random texts that follow from a seed: the same ones in the same order each time."""

    def __init__(self, seed: int, *, block_size: int, blocks: int) -> None:
        self._dice = random.Random(seed)  # noqa: S311 - reproducible on purpose
        self._letters = block_size * blocks + SPARE_LETTERS

    def text(self) -> str:
        """Enough for the blocks that were asked for."""
        return self._made(self._letters)

    def tail(self) -> str:
        """Shorter than a block."""
        return self._made(TAIL_LETTERS)

    def _made(self, count: int) -> str:
        return " ".join(self._dice.choices(LETTERS, k=count))
