"""A pytest plugin that plants a leak: the scopes are left out of every block's tag.

Purges delete nothing either: else whether a revoked block is seen hangs on who is faster.

Loaded by test_planted_leak.py with `-p`; never part of an ordinary run.
"""

from __future__ import annotations

from collections.abc import Sequence

from scopekv.core import blocks
from scopekv.core.blocks import Fingerprint
from scopekv.core.chains import Tag
from scopekv.core.scopes import ScopeId
from scopekv.simulate.plugin import SimulatedPlugin

_whole = blocks.block_tag


def scopeless_tag(
    namespace: Fingerprint, scopes: Sequence[tuple[ScopeId, int]], adapter: bytes = b""
) -> str:
    """As `block_tag`, and wrong: one tag for everybody."""
    del scopes
    return _whole(namespace, [], adapter)


def no_purge(plugin: SimulatedPlugin, tags: frozenset[Tag]) -> int:
    """As `SimulatedPlugin.purge`, and wrong: everything stays."""
    del plugin, tags
    return 0


blocks.block_tag = scopeless_tag
SimulatedPlugin.purge = no_purge  # type: ignore[assignment]
