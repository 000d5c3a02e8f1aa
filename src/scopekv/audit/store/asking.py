"""The audit's own prompts: how they are made, sent, and what came of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from scopekv.audit.endpoint import COMPLETIONS, Endpoint, Reply
from scopekv.audit.store.target import Callers
from scopekv.errors import Unavailable

Prompt = str | Sequence[int]
FIRST_ID, LAST_ID = 300, 9_999  # in the vocabulary of every model; no special token of most
WORD_LETTERS = 14
ANSWER_TOKENS = 4


@dataclass(frozen=True, slots=True, repr=False)
class Told:
    """An answer: its text, and how many tokens of the prompt came from a cache."""

    text: str
    cached_tokens: int


class Asker:
    """Asks one gateway as either caller. An async context manager."""

    def __init__(self, callers: Callers) -> None:
        self._callers = callers
        self._endpoint = Endpoint(callers.url)
        self._model = callers.model

    async def __aenter__(self) -> Self:
        await self._endpoint.__aenter__()
        if not self._model:
            self._model = (await self._endpoint.models(self._callers.key))[0]
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._endpoint.__aexit__(*error)

    async def ask(self, prompt: Prompt, *, as_other: bool = False) -> Told:
        """Raises `Unavailable` for anything but an answer that says what was cached."""
        key = self._callers.other_key if as_other else self._callers.key
        body = {
            "model": self._model,
            "prompt": prompt,
            "max_tokens": ANSWER_TOKENS,
            "temperature": 0,
            "seed": 0,
        }
        return _told(await self._endpoint.call("POST", COMPLETIONS, body, key=key))


def _told(reply: Reply) -> Told:
    if not reply.ok:
        raise Unavailable(f"a prompt of the audit was answered with {reply.status} {reply.code}")
    if reply.cached_tokens is None:
        raise Unavailable(
            "answers do not say how many tokens were cached; start vLLM with "
            "--enable-prompt-tokens-details"
        )
    try:
        return Told(str(reply.body["choices"][0]["text"]), reply.cached_tokens)
    except (KeyError, IndexError, TypeError):
        raise Unavailable("an answer has no text") from None


class PromptMaker:
    """Prompts that nobody else has and that no earlier run had: `run` goes into the dice."""

    def __init__(self, seed: int, run: int, tokens: int) -> None:
        self._dice = random.Random(f"store/{seed}/{run}")  # noqa: S311 - no secret
        self._tokens = tokens

    def token_ids(self) -> list[int]:
        return [self._dice.randint(FIRST_ID, LAST_ID) for _ in range(self._tokens)]

    def words(self) -> list[str]:
        """Made-up words, several tokens each, together about as long as the other prompts."""
        letters = "abcdefghijklmnopqrstuvwxyz"
        count = max(8, self._tokens // 6)
        return ["".join(self._dice.choices(letters, k=WORD_LETTERS)) for _ in range(count)]
