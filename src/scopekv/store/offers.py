"""What the engine offers to a tier: is it to be written, and what will eviction go by?"""

from __future__ import annotations

from scopekv.core.eviction import Entry
from scopekv.ports import ObjectKey
from scopekv.store.blocks import Block
from scopekv.store.mover import Parts
from scopekv.store.sealed_objects import Address
from scopekv.store.settings import TierSettings

Before = tuple[Block, ObjectKey, int]  # the block before in the same job, its place, its depth


class Offers:
    """Used by the thread that stores, alone."""

    def __init__(self, parts: Parts, settings: TierSettings) -> None:
        self._parts = parts
        self._settings = settings

    def entry(self, block: Block, address: Address, before: Before | None) -> Entry[ObjectKey]:
        """What eviction goes by. Where the engine names no parent it is the one before."""
        index = self._parts.index
        parent = index.parent(block.parent, block.group_idx)
        depth = block.depth
        if block.parent is None and before is not None and _continues(before[0], block):
            parent, depth = before[1], depth or before[2] + 1
        if parent == address.key:
            parent = None
        index.is_parent(block.block_hash, block.group_idx, address.key)
        cost = block.cost or self._settings.block_cost_seconds
        return Entry(address.account, parent, depth, self._parts.objects.object_bytes, cost)

    def is_new(self, address: Address) -> bool:
        """Whether to write it now: it is not there, and the tier is well.

        There is no test of worth. Blocks that were written at their second offer only were missed
        by the next turn of a conversation: 3 points of the hit rate (docs/policies.md).
        """
        parts = self._parts
        if parts.writing.suspended or parts.fence.holds(address.key.chain):
            return False
        return not parts.index.keeps(address.key)


def _continues(before: Block, block: Block) -> bool:
    """Whether a block can be the next of the same prompt."""
    same_group = before.group_idx == block.group_idx
    return same_group and block.chain[: len(before.chain)] == before.chain
