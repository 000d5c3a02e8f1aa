"""Law L1 on a small engine: who shares which blocks, and the leak that must be caught.

The engine is a chain of hashes as in vLLM: block = H(parent, tokens, tag). Two callers send
prompts made of the same few texts under different scopes.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Callable, Sequence
from itertools import accumulate, groupby
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scopekv.core.blocks import BlockTagger, Fingerprint
from scopekv.core.encoding import encode, encode_tokens
from scopekv.core.scopes import ScopeId
from scopekv.errors import Misuse

_spec = importlib.util.spec_from_file_location(
    "reference_blocks", Path(__file__).parents[1] / "reference" / "blocks.py"
)
assert _spec
assert _spec.loader
reference = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(reference)

LAW = settings(deadline=None)
HOME = Fingerprint(b"n" * 32)
BLOCK = 4
PUBLIC, GROUP, ANN, BOB = (ScopeId(letter * 16) for letter in (b"p", b"g", b"a", b"b"))
READERS = {PUBLIC: {"ann", "bob"}, GROUP: {"ann", "bob"}, ANN: {"ann"}, BOB: {"bob"}}

Prompt = list[tuple[ScopeId, list[int]]]
Tag = Callable[[int, int], str]


def chain(tokens: Sequence[int], tag: Tag) -> list[bytes]:
    parent, hashes = b"", []
    for start in range(0, len(tokens) - BLOCK + 1, BLOCK):
        words = encode_tokens(tokens[start : start + BLOCK])
        message = encode("model", parent, words, tag(start, start + BLOCK))
        parent = hashlib.sha256(message).digest()
        hashes.append(parent)
    return hashes


def flat(prompt: Prompt) -> tuple[list[int], list[ScopeId]]:
    return (
        [token for _, text in prompt for token in text],
        [scope for scope, text in prompt for _ in text],
    )


def blocks(prompt: Prompt) -> list[bytes]:
    return chain(flat(prompt)[0], _tagger(prompt).tag)


def _tagger(prompt: Prompt) -> BlockTagger:
    ends = list(accumulate(len(text) for _, text in prompt))[:-1]
    return BlockTagger(HOME, ends, [(scope, 0) for scope, _ in prompt])


def shared(ours: Sequence[bytes], theirs: Sequence[bytes]) -> int:
    assert len(set(ours)) == len(ours)
    both = set(ours) & set(theirs)
    count = len(both)
    assert set(ours[:count]) == both  # a chain: what is shared is a prefix
    return count


texts = st.lists(st.integers(0, 1), min_size=1, max_size=7)


@st.composite
def prompts(draw: st.DrawFn, own: ScopeId) -> Prompt:
    """Segments in any order, wide ones after private ones too; neighbours differ in scope."""
    prompt: Prompt = []
    for _ in range(draw(st.integers(0, 4))):
        scope = draw(st.sampled_from([PUBLIC, GROUP, own]))
        if not prompt or prompt[-1][0] != scope:
            prompt.append((scope, draw(texts)))
    if prompt and prompt[-1][0] == own:
        prompt.pop()
    return [*prompt, (own, draw(texts))]


@LAW
@given(prompts(ANN), prompts(BOB), st.booleans())
def test_reading_a_block_takes_every_scope_in_its_chain(
    anns: Prompt, bobs: Prompt, same_text: bool
) -> None:
    """Shared: exactly the blocks that are equal up to their end in tokens and in the order of
    scopes, which both may read. Where in a block one scope ends and the next begins is no part of
    it: whoever may read it may read all of it."""
    if same_text:  # the strongest case: Bob guesses Ann's whole prompt
        bobs = [(BOB if scope == ANN else scope, text) for scope, text in anns]
    (ours, our_scopes), (theirs, their_scopes) = flat(anns), flat(bobs)
    both = {scope for scope, readers in READERS.items() if readers == {"ann", "bob"}}
    alike = 0
    for start in range(0, min(len(ours), len(theirs)) - BLOCK + 1, BLOCK):
        part = slice(start, start + BLOCK)
        run = [scope for scope, _ in groupby(our_scopes[part])]
        their_run = [scope for scope, _ in groupby(their_scopes[part])]
        if ours[part] != theirs[part] or run != their_run or not both.issuperset(run):
            break
        alike += 1
    assert shared(blocks(anns), blocks(bobs)) == alike


@LAW
@given(prompts(ANN))
def test_a_caller_shares_all_with_itself(prompt: Prompt) -> None:
    """The positive beside each negative (I3)."""
    assert blocks(prompt) == blocks(list(prompt))
    assert shared(blocks(prompt), blocks(prompt)) == len(flat(prompt)[0]) // BLOCK


@LAW
@given(st.integers(1, 20), st.integers(1, 20))
def test_the_block_of_the_first_private_token_is_private(public: int, private: int) -> None:
    text, own = list(range(public)), list(range(100, 100 + private))
    anns, bobs = blocks([(PUBLIC, text), (ANN, own)]), blocks([(PUBLIC, text), (BOB, own)])
    first_private = public // BLOCK
    assert anns[:first_private] == bobs[:first_private]
    assert not set(anns[first_private:]) & set(bobs[first_private:])


@LAW
@given(st.integers(1, 20), st.integers(1, 20), st.integers(1, 20))
def test_wide_text_after_private_text_stays_private(a: int, b: int, c: int) -> None:
    doc, own, tail = list(range(a)), list(range(100, 100 + b)), list(range(200, 200 + c))
    anns = blocks([(PUBLIC, doc), (ANN, own), (GROUP, tail), (ANN, [7] * BLOCK)])
    bobs = blocks([(PUBLIC, doc), (BOB, own), (GROUP, tail), (BOB, [7] * BLOCK)])
    assert shared(anns, bobs) == a // BLOCK


@LAW
@given(prompts(ANN), prompts(BOB))
def test_block_identity_equals_its_reference(anns: Prompt, bobs: Prompt) -> None:
    """Two blocks have one hash here exactly where the 20-line reference names them alike."""
    for one in (anns, bobs):
        for other in (anns, bobs):
            named = [_reference(prompt) for prompt in (one, other)]
            assert shared(blocks(one), blocks(other)) == len(set(named[0]) & set(named[1]))


def _reference(prompt: Prompt) -> list[str]:
    ends = list(accumulate(len(text) for _, text in prompt))[:-1]
    names: list[str] = reference.identities(
        flat(prompt)[0], ends, [(scope, 0) for scope, _ in prompt], BLOCK
    )
    return names


@pytest.mark.parametrize("leak", ["no scopes", "first scope only", "last scope only"])
def test_a_planted_leak_is_caught(leak: str) -> None:
    """The model above can fail: each way to forget a scope shares a private block."""

    def leaky(prompt: Prompt) -> list[bytes]:
        tagger, scopes = _tagger(prompt), [scope for scope, _ in prompt]
        ends = list(accumulate(len(text) for _, text in prompt))

        def tag(start: int, end: int) -> str:
            inside = [i for i, stop in enumerate(ends) if stop > start]
            covered = {
                "no scopes": "",
                "first scope only": scopes[inside[0]].hex(),
                "last scope only": scopes[next(i for i, s in enumerate(ends) if s >= end)].hex(),
            }
            assert tagger.tag(start, end)
            return covered[leak]

        return chain(flat(prompt)[0], tag)

    # The private segment is inside one block, so that first and last scope are both public.
    doc, own, tail = [1, 2], [3], [4, 5, 6, 7, 8, 9]
    anns: Prompt = [(PUBLIC, doc), (ANN, own), (PUBLIC, tail), (ANN, [1] * BLOCK)]
    bobs: Prompt = [(PUBLIC, doc), (BOB, own), (PUBLIC, tail), (BOB, [1] * BLOCK)]
    assert shared(leaky(anns), leaky(bobs)) > 0
    assert shared(blocks(anns), blocks(bobs)) == 0


def test_a_tagger_refuses_what_is_no_partition() -> None:
    one, two = [(ANN, 0)], [(PUBLIC, 0), (ANN, 0)]
    for ends, scopes in (((), two), ((3,), one), ((0,), two), ((3, 3), [*two, *one])):
        with pytest.raises(Misuse):
            BlockTagger(HOME, ends, scopes)
