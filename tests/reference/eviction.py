"""ScopedPolicy the obvious way: look at every block for every victim."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from scopekv.core.eviction import Entry, Shares

USES_MAX, RIVALS_MAX = 4, 8


@dataclass
class Block:
    entry: Entry[int]
    used_at: int
    uses: int = 1
    pins: int = 0


class ReferencePolicy:
    """Same answers as ScopedPolicy, block for block."""

    def __init__(self, shares: Shares) -> None:
        self.shares = shares
        self.blocks: dict[int, Block] = {}
        self.step = 0

    def used(self, account: bytes, gone: Collection[int] = ()) -> int:
        mine = (b.entry for k, b in self.blocks.items() if k not in gone)
        return sum(entry.size_bytes for entry in mine if entry.account == account)

    def insert(self, key: int, entry: Entry[int]) -> None:
        self.step += 1
        self.blocks[key] = Block(entry, self.step)

    def touch(self, key: int) -> None:
        if block := self.blocks.get(key):
            self.step += 1
            block.uses, block.used_at = min(block.uses + 1, USES_MAX), self.step

    def remove(self, key: int) -> None:
        self.blocks.pop(key, None)

    def pin(self, key: int) -> None:
        self.blocks[key].pins += 1

    def unpin(self, key: int) -> None:
        self.blocks[key].pins -= 1

    def leaf_of(
        self, account: bytes, slack: int, gone: Collection[int], kept: Collection[int]
    ) -> int | None:
        """The first block to go of an account that may lose `slack` bytes."""
        parents = {b.entry.parent for k, b in self.blocks.items() if k not in gone}
        open_ = [
            key
            for key, block in self.blocks.items()
            if key not in gone and key not in kept and key not in parents and not block.pins
            if block.entry.account == account and block.entry.size_bytes <= slack
        ]
        return min(open_, key=lambda key: self.blocks[key].used_at, default=None)

    def victims(self, size: int, account: bytes, kept: Collection[int] = ()) -> list[int] | None:
        accounts = {block.entry.account for block in self.blocks.values()}
        if size > sum(self.used(each) for each in accounts):
            return None
        guarantee = self.shares.guarantee_bytes(len(accounts | {account}))
        gone: list[int] = []
        while size > 0:
            key = self.next_victim(account, guarantee, gone, kept)
            if key is None:
                return None
            gone.append(key)
            size -= self.blocks[key].entry.size_bytes
        return gone

    def next_victim(
        self,
        account: bytes,
        guarantee: int,
        gone: list[int],
        kept: Collection[int],
    ) -> int | None:
        accounts = {block.entry.account for block in self.blocks.values()}
        used = {each: self.used(each, gone) for each in accounts}
        leaf = {each: self.leaf_of(each, n - guarantee, gone, kept) for each, n in used.items()}
        own = self.leaf_of(account, used.get(account, 0), gone, kept)
        leaf[account] = own
        above = [each for each in used if used[each] > guarantee and leaf[each] is not None]
        above.sort(key=lambda each: (-used[each], each))
        rivals = [key for each in above[:RIVALS_MAX] if (key := leaf[each]) is not None]
        oldest = min(rivals, key=lambda key: self.blocks[key].used_at, default=own)
        unproven = own is not None and self.blocks[own].uses == 1
        if unproven and used.get(account, 0) > guarantee and oldest is not None:
            return own if self.blocks[oldest].uses > 1 else oldest
        return oldest
