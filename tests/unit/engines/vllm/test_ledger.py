"""Under which scopes a block was made: by this alone a purge finds it in an engine."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import pytest

from scopekv.core.chains import chain_at, tag
from scopekv.core.scopes import ScopeId
from scopekv.core.tickets import Grant
from scopekv.engines.vllm.ledger import BlockLedger

SIZE, BLOCKS = 32, 6


def grants(*ends: int) -> tuple[Grant, ...]:
    """A segment up to each end, and the open one."""
    scopes = [ScopeId(bytes([number]) * 16) for number in range(len(ends) + 1)]
    closed = [Grant(end, scope, 0, bytes(32)) for end, scope in zip(ends, scopes, strict=False)]
    return (*closed, Grant(None, scopes[-1], 0, b""))


def hashes(count: int = BLOCKS) -> list[bytes]:
    return [hashlib.sha256(bytes([number])).digest() for number in range(count)]


@pytest.mark.parametrize(
    "ends", [(), (32,), (31,), (33,), (1,), (64, 96), (40, 100), (33, 34, 35), (10, 190), (500,)]
)
@pytest.mark.parametrize("first", [0, 1, 3])
def test_a_block_has_every_scope_before_its_end(ends: Sequence[int], first: int) -> None:
    """Wherever a segment ends: the block that it ends in is the narrower scope's, too (L1)."""
    ledger, made = BlockLedger(SIZE, lambda: 0.0), grants(*ends)
    names = hashes()
    ledger.note(names[:first], 0, made)
    ledger.note(names[first:], first, made)
    for index, name in enumerate(names):
        origin = ledger.get(name)
        assert origin is not None
        assert origin.chain == chain_at(made, (index + 1) * SIZE)
        assert origin.tags == {tag(link) for link in origin.chain}
        for one in origin.tags:
            assert name in ledger.tagged(frozenset({one}))
