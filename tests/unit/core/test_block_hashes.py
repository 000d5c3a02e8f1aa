"""Block hashes made outside the engine, against CBOR's own library.

Against vLLM itself: tests/unit/engines/vllm/test_events_and_hashes.py.
"""

from __future__ import annotations

import hashlib
from typing import Any

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scopekv.core.block_hashes import ChainHasher, EngineHash, pack, root_of, unpack
from scopekv.core.blocks import BlockTagger, Fingerprint
from scopekv.core.scopes import ScopeId
from scopekv.errors import Misuse

PARENT = EngineHash(bytes(range(32)))
IDS = st.lists(st.integers(0, 2**32 - 1), max_size=300)
KEYS = st.one_of(
    st.none(), st.lists(st.tuples(st.text(max_size=30), st.text(max_size=300)), max_size=3)
)
TAGGER = BlockTagger(
    Fingerprint(bytes(32)), [40, 70], [(ScopeId(bytes([n]) * 16), n) for n in range(3)]
)


@given(IDS, KEYS)
def test_a_block_hash_is_sha256_of_canonical_cbor(
    ids: list[int], keys: list[tuple[str, str]] | None
) -> None:
    expected = cbor2.dumps((PARENT, tuple(ids), tuple(keys) if keys else None), canonical=True)
    made = ChainHasher().block(PARENT, ids, keys)
    assert made == hashlib.sha256(expected).digest()


@given(IDS, st.integers(2, 40))
def test_a_chain_is_its_blocks_one_by_one(ids: list[int], size: int) -> None:
    hasher, parent, expected = ChainHasher(), root_of(), []
    for start in range(0, len(ids) - size + 1, size):
        keys = (("scopekv", TAGGER.tag(start, start + size)),)
        parent = hasher.block(parent, ids[start : start + size], keys)
        expected.append(parent)
    assert hasher.chain(ids, TAGGER, block_size=size, root=root_of()) == expected


def test_another_scope_makes_another_chain() -> None:
    """R2: no affinity between strangers with equal tokens."""
    other = BlockTagger(Fingerprint(bytes(32)), [], [(ScopeId(b"x" * 16), 0)])
    ids = list(range(64))
    one, two = (
        ChainHasher().chain(ids, tags, block_size=32, root=root_of()) for tags in (TAGGER, other)
    )
    assert not set(one) & set(two)


@pytest.mark.parametrize("ids", [[-1], [2**32], ["7"], [1.5]])
def test_what_is_no_token_id_has_no_hash(ids: list[Any]) -> None:
    with pytest.raises(Misuse):
        ChainHasher().block(PARENT, ids, None)


@given(st.lists(st.integers(0, 2**64 - 1)))
def test_packed_hashes_come_back(hashes: list[int]) -> None:
    assert list(unpack(pack(hashes))) == hashes


def test_a_broken_pack_is_refused() -> None:
    with pytest.raises(Misuse, match="8-byte"):
        unpack(b"123456789")
