"""L1, L10: a document's blocks depend on the document and what precedes it, on nothing after it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scopekv.gateway.tokenizer import PromptTokenizer
from scopekv.gateway.tokens import Stretch
from tests.prompt_tokenizers import PromptTokenizers

_TEXT = st.text(alphabet="ab1 \n.'é", max_size=24)


@pytest.fixture(scope="module")
def tokenizer(prompt_tokenizers: PromptTokenizers, model_dir: Path) -> PromptTokenizer:
    return prompt_tokenizers.of((model_dir / "tokenizer.json").read_text())


def document_tokens(tokenizer: PromptTokenizer, document: str, after: str) -> list[int]:
    text = f"<|im_start|>system\n{document}{after}"
    end = len(text) - len(after)
    stretches = [Stretch(end, "document", fixed=True), Stretch(len(text), "own")]
    tokens, ends = tokenizer.tokenize(text, stretches)
    return tokens.ids()[: ends[0]]


@given(_TEXT.filter(bool), _TEXT, _TEXT, st.booleans())
def test_document_tokens_are_a_function_of_the_document(
    tokenizer: PromptTokenizer, document: str, one: str, other: str, long: bool
) -> None:
    """Whatever follows, one is the beginning of the other: no variant tells of the text after."""
    document = "The end of it all. " * 20 + document if long else document
    first = document_tokens(tokenizer, document, one)
    second = document_tokens(tokenizer, document, other)
    shorter = min(len(first), len(second))
    assert first[:shorter] == second[:shorter]


@pytest.mark.parametrize("after", ["How", " How", "7", "<|im_end|>", "", "\n"])
def test_trailing_blanks_do_not_tell_what_follows(tokenizer: PromptTokenizer, after: str) -> None:
    alone = document_tokens(tokenizer, "The end.\n\n\n", "")
    assert (
        document_tokens(tokenizer, "The end.\n\n\n", after)
        == alone[: len(alone)][: len(document_tokens(tokenizer, "The end.\n\n\n", after))]
    )
