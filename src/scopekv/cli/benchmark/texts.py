"""Texts of an exact number of tokens that read like text: the document and the questions.

The same seed gives the same texts for the same tokenizer.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from scopekv.core.article import Shape
from scopekv.errors import ConfigError, Misuse

_SUBJECTS = (
    *("the crew", "a visitor", "the night shift", "every station", "the harbour office"),
    *("the pump", "an operator", "the local team", "the main line", "a spare part"),
)
_VERBS = (
    *("must check", "reports", "should open", "may replace", "keeps", "records", "closes"),
    *("tests", "returns", "cleans", "signs for"),
)
_OBJECTS = (
    *("the second valve", "a written note", "the inner door", "both filters", "the old map"),
    *("the water level", "a fresh battery", "the log book", "the long cable", "each lamp"),
)
_ENDS = (
    *("before the day begins", "at least once a week", "when the light turns red", "by hand"),
    *("after heavy rain", "unless the line is busy", "without delay", "in good order"),
)
_FILLERS = ("and", "then", "so", "now", "here", "again", "still", "too")
_TRIES_MAX = 64
_SEAM_CHARS = 256  # of the document's end, read together with each question


@dataclass(frozen=True, slots=True, repr=False)
class Texts:
    """The document, the questions of each user, and the tokens of each prompt.

    A prompt is document + question; its tokens are the document's, then the question's.
    """

    document: str
    questions: tuple[tuple[str, ...], ...]
    prompts: tuple[tuple[tuple[int, ...], ...], ...]


def make_texts(tokenizer_file: Path, shape: Shape, seed: int) -> Texts:
    """Make every text of the example. Raises `ConfigError` where the tokenizer cannot be read.

    Cost: about 3 ms for each thousand tokens of the document and the questions.
    """
    try:
        tokenizer = Tokenizer.from_file(str(tokenizer_file))
    except Exception as error:  # the library raises it bare
        raise ConfigError(f"cannot read the tokenizer {tokenizer_file}: {error}") from error
    dice = random.Random(seed)  # noqa: S311 - texts, not secrets
    document = _text("The keeper's manual.", shape.document_tokens, tokenizer, dice)
    head = _ids(tokenizer, document)
    questions, prompts = [], []
    for user in range(shape.users):
        asked = []
        for _ in range(shape.requests):
            # Digits are tokens of their own: questions part within the first block.
            opening = f"\n\nCase {dice.randrange(10**6):06d} of user {user}:"
            asked.append(_text(opening, shape.question_tokens, tokenizer, dice))
        questions.append(tuple(asked))
        prompts.append(tuple(_prompt(tokenizer, document, head, text, shape) for text in asked))
    return Texts(document, tuple(questions), tuple(prompts))


def _prompt(
    tokenizer: Tokenizer, document: str, head: list[int], question: str, shape: Shape
) -> tuple[int, ...]:
    """Tokens of both, after a look at the seam: tokens are made from left to right, near by."""
    ids = _ids(tokenizer, question)
    end = document[document.rindex(" ", 0, -_SEAM_CHARS) :] if len(document) > 512 else document
    if _ids(tokenizer, end + question) != _ids(tokenizer, end) + ids:
        raise Misuse("this tokenizer joins the document's end with the question's start")
    if len(head) + len(ids) != shape.prompt_tokens:
        raise Misuse(f"a prompt has {len(head) + len(ids)} tokens, not {shape.prompt_tokens}")
    return (*head, *ids)


def _text(opening: str, tokens: int, tokenizer: Tokenizer, dice: random.Random) -> str:
    """A text of exactly `tokens` tokens that starts with `opening`."""
    for _ in range(_TRIES_MAX):
        text = _filled(_sentences(opening, tokens, tokenizer, dice), tokens, tokenizer, dice)
        if text is not None:
            return text
    raise Misuse(
        f"no text of {tokens} tokens starts with {opening.strip()!r}: ask for more tokens (32 do)"
    )


def _sentences(opening: str, tokens: int, tokenizer: Tokenizer, dice: random.Random) -> str:
    """`opening` and whole sentences, a little short of `tokens`."""
    text, count = opening, len(_ids(tokenizer, opening))
    while True:
        parts = (dice.choice(_SUBJECTS), dice.choice(_VERBS), dice.choice(_OBJECTS))
        sentence = " ".join((*parts, dice.choice(_ENDS)))
        mark = "\n\n" if dice.random() < 0.1 else " "
        piece = f"{mark}{sentence.capitalize()}."
        size = len(_ids(tokenizer, piece))
        if count + size > tokens - 1:
            return text
        text, count = text + piece, count + size


def _filled(text: str, tokens: int, tokenizer: Tokenizer, dice: random.Random) -> str | None:
    """`text` with short words and a full stop added up to `tokens`, or None if it overshoots."""
    while (left := tokens - len(_ids(tokenizer, text))) > 0:
        text += "." if left == 1 else f" {dice.choice(_FILLERS)}"
    return text if left == 0 else None


def _ids(tokenizer: Tokenizer, text: str) -> list[int]:
    return list(tokenizer.encode(text, add_special_tokens=False).ids)
