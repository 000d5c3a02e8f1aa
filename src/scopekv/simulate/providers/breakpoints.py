"""OpenAI's prompt cache from GPT-5.6 on, as its documentation and client have it.

breakpoints                the request's own, and one at its end unless mode is explicit
written                    the latest three of its own and that one, or the latest four
read                       the longest prefix written that ends at a breakpoint of the request
kept                       at least 30 minutes; from 1,024 tokens on; not rounded
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from scopekv.simulate.providers.openai import MINIMUM_TOKENS, laid_out

KEEP_SECONDS = 1800.0
CONSIDERED_MAX = 80
WRITTEN_MAX = 4


class BreakpointCache:
    """Prefixes of every organisation."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until: dict[tuple[str, str, tuple[str, ...]], float] = {}

    def use(self, organisation: str, body: Mapping[str, Any]) -> tuple[int, int, int]:
        """Return the tokens of the prompt, how many were read, and how many written."""
        prompt, own = laid_out(body)
        model, now = str(body["model"]), self._clock()
        options = body.get("prompt_cache_options") or {}
        if options.get("mode") == "explicit":
            marks, written = own, own[-WRITTEN_MAX:]
        else:
            marks, written = [*own, len(prompt)], [*own[-WRITTEN_MAX + 1 :], len(prompt)]
        read = 0
        for mark in marks[-CONSIDERED_MAX:]:
            if self._until.get((organisation, model, prompt[:mark]), 0.0) > now:
                read = max(read, mark)
        kept = [mark for mark in written if mark >= MINIMUM_TOKENS]
        for mark in kept:
            self._until[organisation, model, prompt[:mark]] = now + KEEP_SECONDS
        return len(prompt), read, max([0, *(mark - read for mark in kept)])
