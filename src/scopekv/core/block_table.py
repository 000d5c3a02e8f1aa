"""The table below the location index: short hash to a mask of bits, a bit for each place.

Every mask is one object for all blocks that have it, and a block held once is no more than its
entry, so a block takes 90 bytes whatever the number of places that hold it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

MASKS_MAX = 1 << 16
SLICE = 2048


class BlockTable:
    """At most `blocks_max` blocks. A bit is made by `fresh`, ended by `retire`.

    What a retired bit held still takes room until `tidy` has passed over it.
    """

    def __init__(self, blocks_max: int) -> None:
        self.blocks_max = blocks_max
        self._table: dict[int, int] = {}
        self._masks: dict[int, int] = {}  # one object for each distinct mask
        self._more: dict[tuple[int, int], int] = {}  # (hash, bit): copies beyond the first
        self._sizes: Counter[int] = Counter()  # bit: distinct blocks
        self._free: list[int] = []
        self._bits_made = 0
        self._dead = 0  # bits that stand for nothing any more, still in masks
        self._sweep: Iterator[None] | None = None

    def __len__(self) -> int:
        return len(self._table) + len(self._more)

    @property
    def look_up(self) -> Callable[[int, int], int]:
        """(short hash, 0) to its mask, 0 where nobody has it. Retired bits may be set in it."""
        return self._table.get

    def size(self, bit: int) -> int:
        """How many distinct blocks have the bit."""
        return self._sizes[bit]

    def contents(self, bit: int) -> Counter[int]:
        """All blocks with this bit and how often. Cost: a pass over the table."""
        more = self._more
        return Counter(
            {
                block_hash: 1 + more.get((block_hash, bit), 0)
                for block_hash, mask in self._table.items()
                if mask & bit
            }
        )

    def add(self, bit: int, hashes: Iterable[int]) -> int:
        """Count each of these once more under the bit; return how many found no room."""
        table, masks, more = self._table, self._masks, self._more
        room = self.blocks_max - len(self)
        alone = masks.setdefault(bit, bit)
        new = left_out = after = 0
        before: int | None = None  # most blocks of a prompt are held alike
        for block_hash in hashes:
            mask = table.get(block_hash, 0)
            if mask is before:
                table[block_hash] = after
                new += 1
                continue
            if mask & bit:
                copies = more.get((block_hash, bit), 0)
                if copies or room > 0:
                    room -= copies == 0
                    more[block_hash, bit] = copies + 1
                else:
                    left_out += 1
                continue
            if not mask:
                if room <= 0:
                    while self.tidy():
                        pass
                    room = self.blocks_max - len(self)
                if room <= 0:
                    left_out += 1
                    continue
                room -= 1
                table[block_hash] = alone
            else:
                before, after = mask, masks.setdefault(mask | bit, mask | bit)
                table[block_hash] = after
            new += 1
        self._sizes[bit] += new
        if len(masks) > MASKS_MAX:
            masks.clear()
        return left_out

    def remove(self, bit: int, hashes: Iterable[int]) -> int:
        """Count each of these once less under the bit; return how many did not have it."""
        table, masks, more = self._table, self._masks, self._more
        unknown = gone = after = 0
        before: int | None = None
        for block_hash in hashes:
            mask = table.get(block_hash, 0)
            if mask is before and not more:
                table[block_hash] = after
                gone += 1
            elif not mask & bit:
                unknown += 1
            elif more and (copies := more.get((block_hash, bit), 0)):
                if copies > 1:
                    more[block_hash, bit] = copies - 1
                else:
                    del more[block_hash, bit]
            else:
                gone += 1
                if mask == bit:
                    del table[block_hash]
                    continue
                before, after = mask, masks.setdefault(mask ^ bit, mask ^ bit)
                table[block_hash] = after
        self._sizes[bit] -= gone
        return unknown

    def fresh(self) -> int:
        """A bit that no block has."""
        if self._free:
            return self._free.pop()
        self._bits_made += 1
        return 1 << (self._bits_made - 1)

    def retire(self, bit: int) -> None:
        """The bit stands for nothing from now on. Cost: none that grows with what it held."""
        if self._sizes.pop(bit, 0):
            self._dead |= bit
        else:
            self._free.append(bit)

    def tidy(self) -> bool:
        """Drop a slice of what retired bits held; return whether more is left."""
        if self._sweep is None:
            if not self._dead:
                return False
            self._sweep = self._sweeping(self._dead)
            self._dead = 0
        if next(self._sweep, self) is self:
            self._sweep = None
        return self._sweep is not None or self._dead != 0

    def _sweeping(self, dead: int) -> Iterator[None]:
        table, masks, keep = self._table, self._masks, ~dead
        keys = list(table)
        for start in range(0, len(keys), SLICE):
            for block_hash in keys[start : start + SLICE]:
                mask = table.get(block_hash, 0)
                if mask & dead:
                    mask &= keep
                    if mask:
                        table[block_hash] = masks.setdefault(mask, mask)
                    else:
                        del table[block_hash]
            yield
        for key in [key for key in self._more if key[1] & dead]:
            del self._more[key]
        while dead:
            self._free.append(dead & -dead)
            dead &= dead - 1
