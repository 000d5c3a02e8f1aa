"""A pytest plugin that plants a leak: the scopes are left out of every block's tag.

Loaded by test_planted_leak.py with `-p`; never part of an ordinary run.
"""

from __future__ import annotations

from collections.abc import Sequence

from scopekv.core import blocks
from scopekv.core.blocks import Fingerprint
from scopekv.core.scopes import ScopeId

_whole = blocks.block_tag


def scopeless_tag(
    namespace: Fingerprint, scopes: Sequence[tuple[ScopeId, int]], adapter: bytes = b""
) -> str:
    """As `block_tag`, and wrong: one tag for everybody."""
    del scopes
    return _whole(namespace, [], adapter)


blocks.block_tag = scopeless_tag
