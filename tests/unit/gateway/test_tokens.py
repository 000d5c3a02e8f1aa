"""Tokenising in pieces gives the tokens of the whole text, and straddling tokens are private."""

from __future__ import annotations

import copy
import functools
import json
import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from scopekv.errors import Misuse
from scopekv.gateway.tokenizer import PromptTokenizer
from scopekv.gateway.tokens import Stretch, Tokens, added_in, common, load_tokenizer

# Qwen's and Llama 3's way to cut, over the same vocabulary.
QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
VARIANTS = ("own", "split", "trimmed offsets")
Make = Callable[[str], Tokenizer]
Fresh = Callable[..., PromptTokenizer]
LAW = settings(deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="session")
def make(model_dir: Path) -> Make:
    source = (model_dir / "tokenizer.json").read_text()

    @functools.cache  # 0.5 s each, and nothing changes one
    def tokenizer(variant: str) -> Tokenizer:
        parts = json.loads(source)
        level = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
        if variant == "split":
            split = {"type": "Split", "pattern": {"Regex": QWEN}, "behavior": "Isolated"}
            steps = [split | {"invert": False}, level | {"trim_offsets": False}]
            parts["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": steps}
        if variant == "trimmed offsets":  # as in GPT-2's and Llama 3's tokenizer.json
            parts["post_processor"] = level | {"trim_offsets": True, "use_regex": True}
        return load_tokenizer(json.dumps(parts))

    return tokenizer


@pytest.fixture(scope="session")
def fresh(make: Make) -> Fresh:
    """A prompt tokenizer with an empty memo; its tables, 0.5 s to make, are made once."""
    made: dict[str, PromptTokenizer] = {}

    def tokenizer(variant: str = "own", memo_bytes_max: int = 1 << 20) -> PromptTokenizer:
        if variant not in made:
            made[variant] = PromptTokenizer(make(variant))
        one = copy.copy(made[variant])
        one._memo, one._memo_bytes, one._memo_bytes_max = OrderedDict(), 0, memo_bytes_max
        return one

    return tokenizer


def reference(tokenizer: Tokenizer, text: str, ends: list[int]) -> tuple[list[int], list[int]]:
    """Tokens of the whole text, and by bytes how many end before each character end."""
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
    added = {i: token.content for i, token in tokenizer.get_added_tokens_decoder().items()}
    sizes = [len(added[i].encode() if i in added else str(tokenizer.id_to_token(i))) for i in ids]
    stops = list(accumulate(sizes))
    return ids, [sum(stop <= len(text[:end].encode()) for stop in stops) for end in ends]


NASTY = [
    "", " ", "  ", "\n", "\n\n", "\t", "\r\n", "   \n  ", "a", "The", " end", "'s", "'ll", "it's",
    "1", "12", "2024", "3.14", "é", "🙂", "👩‍👩‍👧",
    "日本語", "ﷺ", "\u0301", "…", "--", "://", "<|",
    "<|im_end|>", "<|im_start|>user\n", "<|im_sta", "|>", "<|endoftext|>", "\ue000",
    "\xa0", "x" * 40,
]  # fmt: skip
fragments = st.lists(
    st.sampled_from(NASTY) | st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
    max_size=6,
).map("".join)
DOCUMENT = "The handbook says it's 3.14 of 2024.\n\nHow many days?  "
documents = st.sampled_from([DOCUMENT, DOCUMENT * 3, "Short.", DOCUMENT + "\n", "日本語🙂" * 4])


@st.composite
def prompts(draw: st.DrawFn) -> list[tuple[str, str, bool]]:
    """(text, owner, fixed) of each stretch: glue, documents one after another, private text."""
    glue = draw(st.sampled_from(["", "<|im_start|>user\n", "<|im_start|>system\n"]))
    docs = draw(st.lists(documents, max_size=3))
    pieces = [(text, f"doc {text[:5]}", True) for text in docs]
    pieces += [(text, "ann", False) for text in draw(st.lists(fragments, max_size=3))]
    if pieces:
        pieces[0] = (glue + pieces[0][0], *pieces[0][1:])
    return pieces


def stretches_of(prompt: list[tuple[str, str, bool]]) -> tuple[str, list[Stretch]]:
    text = "".join(piece for piece, _, _ in prompt)
    ends = accumulate(len(piece) for piece, _, _ in prompt)
    owners = accumulate(((owner,) for _, owner, _ in prompt), lambda a, b: (*a, *b))
    return text, [
        Stretch(end, owner, fixed)
        for end, owner, (_, _, fixed) in zip(ends, owners, prompt, strict=True)
    ]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.slow
def test_pieces_give_the_tokens_of_the_whole(make: Make, fresh: Fresh, variant: str) -> None:
    """The same, and the same ends, at the first pass, from the memo, and with a tiny memo."""
    plain, kept, tiny = make(variant), fresh(variant), fresh(variant, 3000)

    @LAW
    @given(prompts(), st.sampled_from(["", "<|im_end|>\n<|im_start|>assistant\n", "tail"]))
    def law(prompt: list[tuple[str, str, bool]], tail: str) -> None:
        text, stretches = stretches_of(prompt)
        text += tail
        ids, ends = reference(plain, text, [stretch.end for stretch in stretches])
        for index, stretch in enumerate(stretches):
            if stretch.fixed:  # a document ends where what follows begins to change its tokens
                alone = plain.encode(text[: stretch.end], add_special_tokens=False).ids
                ends[index] = min(ends[index], common(alone, ids))
        # This vocabulary drops a few rare bytes, and the reference counts bytes.
        assume(plain.decode(ids, skip_special_tokens=False) == text)
        for tokenizer in (kept, kept, tiny):
            tokens, found = tokenizer.tokenize(text, stretches)
            assert tokens.ids() == ids
            assert list(found) == ends
            assert json.loads(b"[" + tokens.json + b"]") == ids

    law()


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(
    ("document", "private"),
    [("The end.\n", "   x"), ("hand", "book"), ("a ", " b"), ("é", "\u0301"), ("<|im", "_end|>x")],
)
def test_a_token_that_straddles_a_boundary_is_private(
    make: Make, fresh: Fresh, variant: str, document: str, private: str
) -> None:
    text, cut = document + private, len(document)
    stretches = [Stretch(cut, "doc", fixed=True), Stretch(len(text), "ann")]
    tokens, ends = fresh(variant).tokenize(text, stretches)
    plain = make(variant)
    public = tokens.ids()[: ends[0]]
    assert document.startswith(plain.decode(public, skip_special_tokens=False))
    assert (tokens.ids(), list(ends)) == reference(plain, text, [cut, len(text)])


@pytest.fixture
def read(fresh: Fresh, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What prompt tokenizers of this test had to read, text by text."""
    texts: list[str] = []
    original = PromptTokenizer._encode

    def encode(
        self: PromptTokenizer, text: str, ends: Sequence[int], seen: dict[str, list[int]]
    ) -> Any:
        texts.append(text)
        return original(self, text, ends, seen)

    fresh()
    monkeypatch.setattr(PromptTokenizer, "_encode", encode)
    return texts


def ask(tokenizer: PromptTokenizer, question: str, owner: str) -> None:
    text = "<|im_start|>user\n" + DOCUMENT * 50 + question + "<|im_end|>\n"
    document = Stretch(len("<|im_start|>user\n") + len(DOCUMENT) * 50, ("doc",), fixed=True)
    private = Stretch(document.end + len(question), ("doc", owner))
    tokenizer.tokenize(text, [document, private])


def test_a_known_document_is_not_read_again(fresh: Fresh, read: list[str]) -> None:
    tokenizer = fresh()
    ask(tokenizer, "First question?", "ann")
    read.clear()
    ask(tokenizer, "First question?", "ann")
    assert read == []
    ask(tokenizer, "Another question?", "ann")
    assert sum(map(len, read)) < 200
    assert "Another question?" in "".join(read)


def test_a_memo_is_never_shared_across_owners(fresh: Fresh, read: list[str]) -> None:
    """Or its speed would tell Bob what Ann sent (L10)."""
    tokenizer = fresh()
    ask(tokenizer, "Ann's secret?", "ann")
    read.clear()
    ask(tokenizer, "Ann's secret?", "bob")
    assert "Ann's secret?" in "".join(read)
    assert sum(map(len, read)) < 200  # the document is everybody's
    read.clear()
    text = "<|im_start|>user\n" + DOCUMENT + "<|im_end|>\n"
    stretches = [Stretch(len(text), ("bob",))]
    tokenizer.tokenize(text, stretches)
    assert DOCUMENT in "".join(read)


def test_the_memo_keeps_to_its_bound(fresh: Fresh, read: list[str]) -> None:
    tokenizer = fresh(memo_bytes_max=60_000)
    ask(tokenizer, "Old?", "ann")
    for number in range(40):
        ask(tokenizer, f"Question {number}?" * 20, "ann")
        held = sum(entry.bytes for entry in tokenizer._memo.values())
        assert held == tokenizer._memo_bytes <= 60_000
    read.clear()
    ask(tokenizer, "Old?", "ann")
    assert read != []


def test_a_text_larger_than_the_memo_is_read_each_time(fresh: Fresh) -> None:
    tokenizer = fresh(memo_bytes_max=100)
    ask(tokenizer, "Big?", "ann")
    assert (len(tokenizer._memo), tokenizer._memo_bytes) == (0, 0)


@pytest.mark.parametrize("text", ["", "a", "<|im_end|>", "<|im_end|><|im_end|>"])
def test_no_stretches_and_no_text(make: Make, fresh: Fresh, text: str) -> None:
    tokens, ends = fresh().tokenize(text, [])
    assert (tokens.ids(), ends) == (make("own").encode(text).ids, ())
    stretches = [Stretch(len(text), "ann")]
    assert fresh().tokenize(text, stretches)[1] == (len(tokens),)


def test_special_tokens_are_added_as_the_engine_does(make: Make) -> None:
    plain = make("own")
    parts = json.loads(plain.to_str())
    bos = {"id": "<|im_start|>", "type_id": 0}
    parts["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": bos}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {
            "<|im_start|>": {"id": "<|im_start|>", "ids": [1], "tokens": ["<|im_start|>"]}
        },
    }
    tokenizer = PromptTokenizer(load_tokenizer(json.dumps(parts)))
    text, cut = DOCUMENT + "Why?", len(DOCUMENT)
    stretches = [Stretch(cut, "doc", fixed=True), Stretch(cut + 4, "ann")]
    with_bos, ends = tokenizer.tokenize(text, stretches, special=True)
    without, ends_without = tokenizer.tokenize(text, stretches, special=False)
    assert with_bos.ids() == [1, *without.ids()]
    assert ends == tuple(end + 1 for end in ends_without)


@given(st.lists(st.lists(st.integers(0, 2**32 - 1), max_size=4), max_size=4))
def test_tokens_join_in_both_forms(pieces: list[list[int]]) -> None:
    joined = Tokens.join([Tokens.of(piece) for piece in pieces])
    flat = [token for piece in pieces for token in piece]
    assert joined == Tokens.of(flat)
    assert (joined.ids(), len(joined)) == (flat, len(flat))


def test_what_is_no_tokenizer_is_refused() -> None:
    for text in ("", "{}", "null", "not json"):
        with pytest.raises(Misuse):
            load_tokenizer(text)


@settings(deadline=None)
@given(st.lists(st.sampled_from(["<a>", "<ab>", "<", "b>", " ", "<" * 60]), max_size=12))
def test_added_tokens_are_found_as_by_the_pattern_alone(pieces: list[str]) -> None:
    pattern, text = re.compile("<ab>|<a>"), "".join(pieces)
    expected = [found.span() for found in pattern.finditer(text)]
    assert [found.span() for found in added_in(pattern, "<", text)] == expected
