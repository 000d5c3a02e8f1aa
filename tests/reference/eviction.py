"""ScopedPolicy the obvious way: look at every block for every victim."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from scopekv.core.eviction import Entry, Shares

USES_MAX, IDLE_CAPACITIES = 4, 8


@dataclass
class Block:
    entry: Entry[int]
    priority: float
    serial: int
    uses: int = 1
    pins: int = 0

    def rank(self) -> tuple[float, int, int]:
        return self.priority, -self.entry.depth, self.serial


class ReferencePolicy:
    """Same answers as ScopedPolicy, block for block."""

    def __init__(self, shares: Shares) -> None:
        self.shares = shares
        self.blocks: dict[int, Block] = {}
        self.clocks: dict[bytes, float] = {}
        self.used_at: dict[bytes, tuple[int, int]] = {}  # account: volume, step of its last use
        self.offered: list[int] = []
        self.volume = self.step = 0

    def used(self, account: bytes, gone: Collection[int] = ()) -> int:
        mine = (b.entry for k, b in self.blocks.items() if k not in gone)
        return sum(entry.size_bytes for entry in mine if entry.account == account)

    def used_now(self, account: bytes) -> None:
        self.step += 1
        self.used_at[account] = (self.volume, self.step)

    def insert(self, key: int, entry: Entry[int]) -> None:
        self.volume += entry.size_bytes
        self.used_now(entry.account)
        clock = self.clocks.get(entry.account, 0.0)
        self.blocks[key] = Block(entry, clock + entry.cost / entry.size_bytes, self.volume)

    def touch(self, key: int) -> None:
        if block := self.blocks.get(key):
            block.uses = min(block.uses + 1, USES_MAX)
            worth = block.uses * (block.entry.cost / block.entry.size_bytes)
            block.priority = self.clocks.get(block.entry.account, 0.0) + worth
            self.used_now(block.entry.account)

    def remove(self, key: int) -> None:
        if block := self.blocks.pop(key, None):
            account = block.entry.account
            if key in self.offered:
                self.offered.remove(key)
                self.clocks[account] = max(self.clocks.get(account, 0.0), block.priority)
            if not self.used(account):
                self.clocks.pop(account, None)
                self.used_at.pop(account, None)

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
        return min(open_, key=lambda key: self.blocks[key].rank(), default=None)

    def victims(self, size: int, account: bytes, kept: Collection[int] = ()) -> list[int] | None:
        accounts = {block.entry.account for block in self.blocks.values()}
        if size > sum(self.used(each) for each in accounts):
            return None
        guarantee = self.shares.guarantee_bytes(len(accounts | {account}))
        bound = IDLE_CAPACITIES * self.shares.capacity_bytes
        idle = [each for each in self.used_at if self.volume - self.used_at[each][0] > bound]
        for each in idle:
            if self.used(each) <= guarantee:
                del self.used_at[each]  # content until its next use
        idle = sorted((e for e in idle if e in self.used_at), key=lambda e: self.used_at[e][1])
        gone: list[int] = []
        while size > 0:
            key = self.next_victim(account, guarantee, idle, gone, kept)
            if key is None:
                return None
            gone.append(key)
            size -= self.blocks[key].entry.size_bytes
        self.offered = list(gone)
        return gone

    def next_victim(
        self,
        account: bytes,
        guarantee: int,
        idle: list[bytes],
        gone: list[int],
        kept: Collection[int],
    ) -> int | None:
        used = {b.entry.account: self.used(b.entry.account, gone) for b in self.blocks.values()}
        leaf = {each: self.leaf_of(each, n - guarantee, gone, kept) for each, n in used.items()}
        own = self.leaf_of(account, used.get(account, 0), gone, kept)
        others = [leaf[each] for each in idle if each != account and leaf[each] is not None]
        if others:
            return others[0]
        for each in sorted(used, key=lambda each: (-used[each], each)):
            key = own if each == account else leaf[each]
            if key is not None:
                unproven = own is not None and self.blocks[own].uses == 1
                if unproven and used.get(account, 0) > guarantee and self.blocks[key].uses > 1:
                    return own
                return key
        return own
