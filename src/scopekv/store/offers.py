"""What the engine offers to a tier: is it worth writing, and what will eviction go by?"""

from __future__ import annotations

from scopekv.core.admission import Admission, expected_worth
from scopekv.core.eviction import Entry
from scopekv.core.reasons import AdmissionReason
from scopekv.ports import ObjectKey
from scopekv.store.blocks import Block
from scopekv.store.mover import Parts
from scopekv.store.sealed_objects import Address
from scopekv.store.settings import TierSettings

Before = tuple[Block, ObjectKey, int]  # the block before in the same job, its place, its depth


class Offers:
    """Used by the thread that stores, alone."""

    def __init__(self, parts: Parts, settings: TierSettings, admission: Admission) -> None:
        self._parts = parts
        self._settings = settings
        self._admission = admission

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

    def worth_storing(self, address: Address, entry: Entry[ObjectKey]) -> bool:
        """Whether to write it now: it is not there, the tier is well, and admission says so."""
        parts = self._parts
        if parts.writing.suspended or parts.fence.holds(address.key.chain):
            return False
        if parts.index.keeps(address.key):
            return False
        reason = self._admission.decide(
            bytes.fromhex(address.key.name),
            used_bytes=parts.index.used_bytes,
            size_bytes=entry.size_bytes,
            capacity_bytes=self._settings.capacity_bytes,
            guaranteed=parts.index.guaranteed(entry),
            worth=expected_worth(cost=entry.cost, size_bytes=entry.size_bytes, expected_uses=1.0),
            victim_worth=parts.index.victim_worth(entry),
        )
        if reason is AdmissionReason.FIRST_USE:
            parts.counts.add("not_admitted")
            return False
        return True


def _continues(before: Block, block: Block) -> bool:
    """Whether a block can be the next of the same prompt."""
    same_group = before.group_idx == block.group_idx
    return same_group and block.chain[: len(before.chain)] == before.chain
