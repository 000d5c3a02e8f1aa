"""Answers of a simulated engine in OpenAI's shapes: whole, or as events of a stream."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from scopekv.errors import Misuse

SALT_CHARS_MAX = 128
_FORBIDDEN = frozenset("@/\\\0")


@dataclass(frozen=True, slots=True, repr=False)
class Sequence:
    """One answered sequence: its prompt's tokens, how many of them were cached, its words."""

    prompt_tokens: int
    cached_tokens: int
    words: list[str]


@dataclass(frozen=True, slots=True, repr=False)
class Answer:
    """Every sequence of one request, `per_prompt` for each of its prompts."""

    chat: bool
    model: str
    created: int
    per_prompt: int
    sequences: list[Sequence]
    counts_usage: bool
    counts_cached: bool = True

    def usage(self) -> dict[str, Any]:
        """As vLLM: a prompt counts once, however many sequences it has."""
        prompts = self.sequences[:: self.per_prompt]
        total = sum(sequence.prompt_tokens for sequence in prompts)
        words = sum(len(sequence.words) for sequence in self.sequences)
        cached = sum(sequence.cached_tokens for sequence in prompts)
        return {
            "prompt_tokens": total,
            "completion_tokens": words,
            "total_tokens": total + words,
            "prompt_tokens_details": {"cached_tokens": cached} if self.counts_cached else None,
        }

    def whole(self) -> dict[str, Any]:
        choices = [
            self._choice(index, "".join(sequence.words), "message", "stop")
            for index, sequence in enumerate(self.sequences)
        ]
        kind = "chat.completion" if self.chat else "text_completion"
        return self._head(kind) | {"choices": choices, "usage": self.usage()}

    def events(self) -> Iterator[bytes]:
        """Server-sent events: a word each, the usage if asked for, the end."""
        kind = "chat.completion.chunk" if self.chat else "text_completion"
        for index, sequence in enumerate(self.sequences):
            last = len(sequence.words) - 1
            for number, word in enumerate(sequence.words):
                reason = "length" if number == last else None
                choices = [self._choice(index, word, "delta", reason)]
                yield _event(self._head(kind) | {"choices": choices})
        if self.counts_usage:
            yield _event(self._head(kind) | {"choices": [], "usage": self.usage()})
        yield b"data: [DONE]\n\n"

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": "sim-1", "object": kind, "created": self.created, "model": self.model}

    def _choice(self, index: int, text: str, member: str, reason: str | None) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": index, "finish_reason": reason}
        if self.chat:
            return choice | {member: {"role": "assistant", "content": text}}
        return choice | {"text": text}


def salt_of(body: dict[str, Any]) -> str:
    """The request's cache_salt under vLLM's rules; empty without one."""
    salt = body.get("cache_salt")
    if salt is None:
        return ""
    if not isinstance(salt, str) or not 1 <= len(salt) <= SALT_CHARS_MAX or _FORBIDDEN & set(salt):
        raise Misuse("cache_salt must have 1 to 128 characters without @ / \\ NUL")
    return salt


def whole_number(body: dict[str, Any], name: str, default: int) -> int:
    """A positive whole number of the body. Raises `Misuse` for anything else."""
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise Misuse(f"{name} must be a whole number from 1")
    return value


def _event(content: dict[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(content) + b"\n\n"
