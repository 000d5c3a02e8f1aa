"""Prompt tokenizers over tables that are made once a run: most of a second of work each."""

from __future__ import annotations

import copy
from collections import OrderedDict

from scopekv.gateway.tokenizer import MEMO_BYTES_MAX, PromptTokenizer
from scopekv.gateway.tokens import load_tokenizer


class PromptTokenizers:
    """Each has a memo of its own, and shares what depends on the tokenizer.json alone."""

    def __init__(self) -> None:
        self._made: dict[str, PromptTokenizer] = {}

    def of(self, text: str, memo_bytes_max: int = MEMO_BYTES_MAX) -> PromptTokenizer:
        """As `PromptTokenizer(load_tokenizer(text))`. Raises `Misuse`."""
        if text not in self._made:
            self._made[text] = PromptTokenizer(load_tokenizer(text))
        one = copy.copy(self._made[text])
        one._memo, one._seen = OrderedDict(), OrderedDict()
        one._memo_bytes, one._memo_bytes_max = 0, memo_bytes_max
        return one
