"""The location index: which instance holds which block, and in what medium.

    short hash ──▶ mask of bits, one bit for each (instance, medium) that holds the block

    locate(chain)    bits of the wanted engines AND mask of block 0, 1, 2, ...   a prefix ends
                     where its bit is missing; there its host memory takes over

A block is found by its scoped hash alone, so a look-up takes a chain that only a caller with every
scope in it can make (L4). To forget an instance or a medium takes a fresh bit and drops the old one
later, in slices (`tidy`), so it costs nothing at that moment.

Bounded: at most `blocks_max` distinct blocks. Where it is full, blocks not known yet are left out,
so that an instance looks emptier than it is, never fuller, and `partial` says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from scopekv.core.block_table import SLICE, BlockTable
from scopekv.core.events import Medium
from scopekv.errors import Misuse

__all__ = ["SLICE", "Load", "LocationIndex", "Reach"]

# A block that is held anywhere: its entry in the table and its key, as measured by
# benchmarks/index.py, with the room that a growing table has.
BLOCK_BYTES = 120
BYTES_MAX = 256 << 20


class Reach(NamedTuple):
    """How many leading blocks of a chain an instance has, counted from the first.

    Up to `engine` in engine memory; on to `host` in host memory; on to `outer` in a tier.
    """

    engine: int
    host: int
    outer: int


class LocationIndex:
    """Short hashes to places. Changed and read in one thread."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        if bytes_max < 1 << 20:
            raise Misuse(f"a location index takes 1 MiB or more, not {bytes_max} bytes")
        self.left_out = 0  # additions that found no room
        self._table = BlockTable(bytes_max // BLOCK_BYTES)
        self._bits: dict[str, list[int]] = {}
        self._partial: set[str] = set()

    @property
    def blocks_max(self) -> int:
        return self._table.blocks_max

    def __len__(self) -> int:
        """How many distinct blocks take room, forgotten ones that `tidy` has not met included."""
        return len(self._table)

    @property
    def used_bytes(self) -> int:
        return len(self) * BLOCK_BYTES

    @property
    def instances(self) -> tuple[str, ...]:
        return tuple(self._bits)

    # --- instances ------------------------------------------------------------------------------

    def join(self, name: str) -> None:
        """Know an instance from now on; it holds nothing. Nothing changes if it is known."""
        if name not in self._bits:
            self._bits[name] = [self._table.fresh() for _ in Medium]

    def forget(self, name: str) -> None:
        """The instance holds nothing from now on. Cost: none that grows with what it held."""
        for medium in Medium:
            self.clear(name, medium)
        self._partial.discard(name)

    def leave(self, name: str) -> None:
        """Forget the instance altogether."""
        for bit in self._bits.pop(name, ()):
            self._table.retire(bit)
        self._partial.discard(name)

    def clear(self, name: str, medium: Medium) -> None:
        """One medium of the instance holds nothing from now on."""
        bits = self._bits[name]
        if self._table.size(bits[medium]):
            self._table.retire(bits[medium])
            bits[medium] = self._table.fresh()

    def size(self, name: str, medium: Medium) -> int:
        """How many distinct blocks a medium of the instance holds."""
        return self._table.size(self._bits[name][medium])

    def partial(self, name: str) -> bool:
        """Whether blocks of this instance were left out since it was last forgotten or loaded."""
        return name in self._partial

    @property
    def roomy(self) -> bool:
        """Whether a tenth of the room is free: time to load what was left out."""
        return len(self) < self.blocks_max - self.blocks_max // 10

    # --- changes --------------------------------------------------------------------------------

    def add(self, name: str, medium: Medium, hashes: Iterable[int]) -> None:
        """The instance holds each of these once more."""
        left_out = self._table.add(self._bits[name][medium], hashes)
        if left_out:
            self.left_out += left_out
            self._partial.add(name)

    def remove(self, name: str, medium: Medium, hashes: Iterable[int]) -> int:
        """The instance holds each of these once less; return how many it was not known to hold."""
        return self._table.remove(self._bits[name][medium], hashes)

    def load(self, name: str) -> Load:
        """Begin to replace all that is known of the instance; see `Load`."""
        if name not in self._bits:
            raise Misuse("an instance joins before it is loaded")
        return Load(self, name)

    # --- looking --------------------------------------------------------------------------------

    def locate(self, chain: Sequence[int], names: Iterable[str]) -> dict[str, Reach]:
        """How far each of these instances has this chain of short hashes.

        As vLLM reads: engine memory up to the first block that is missing there, host memory from
        that block on, tiers from the first that host memory lacks. Cost: a dictionary look-up a
        block up to the longest reach.
        """
        owners: dict[int, tuple[str, Medium]] = {}
        ends: dict[str, list[int]] = {}
        wanted = 0
        for name in names:
            bits = self._bits[name]
            owners.update((bit, (name, medium)) for bit, medium in zip(bits, Medium, strict=True))
            ends[name] = [len(chain)] * len(Medium)
            wanted |= bits[Medium.ENGINE]
        get = self._table.look_up
        for index, block_hash in enumerate(chain):
            mask = get(block_hash, 0)
            if mask & wanted != wanted:
                wanted = self._handed_on(mask, wanted, index, owners, ends)
                if not wanted:
                    break
        return {name: Reach(*found) for name, found in ends.items()}

    def _handed_on(
        self,
        mask: int,
        wanted: int,
        index: int,
        owners: dict[int, tuple[str, Medium]],
        ends: dict[str, list[int]],
    ) -> int:
        """Where a medium lacks block `index`, the next one that has it takes over."""
        missing = wanted & ~mask
        while missing:
            bit = missing & -missing
            missing ^= bit
            name, medium = owners[bit]
            bits = self._bits[name]
            if medium is Medium.OUTER and mask & bits[Medium.HOST]:
                continue  # a tier's run may take blocks from host memory
            wanted ^= bit
            for later in Medium:
                if later < medium:
                    continue
                if later > medium and mask & bits[later]:
                    wanted |= bits[later]
                    break
                ends[name][later] = index
        return wanted

    def contents(self, name: str, medium: Medium) -> Counter[int]:
        """All blocks of a medium with how often each is held. Cost: a pass over the index."""
        return self._table.contents(self._bits[name][medium])

    def tidy(self) -> bool:
        """Drop a slice of what was forgotten; return whether more is left."""
        return self._table.tidy()


class Load:
    """A replacement under way: what it adds counts from `commit` on, all at once.

    End it with `commit` or `abandon`. In between the index shows what it showed before.
    """

    def __init__(self, index: LocationIndex, name: str) -> None:
        self._index, self._name = index, name
        self._bits = [index._table.fresh() for _ in Medium]
        self._left_out = 0

    def add(self, medium: Medium, hashes: Iterable[int]) -> None:
        """The instance holds each of these once more. Call it in slices."""
        self._left_out += self._index._table.add(self._bits[medium], hashes)

    def commit(self) -> None:
        """From now on the instance holds what was added, and nothing else."""
        index, name = self._index, self._name
        if name not in index._bits:
            self.abandon()
            return
        old, index._bits[name] = index._bits[name], self._bits
        for bit in old:
            index._table.retire(bit)
        index._partial.discard(name)
        if self._left_out:
            index.left_out += self._left_out
            index._partial.add(name)

    def abandon(self) -> None:
        for bit in self._bits:
            self._index._table.retire(bit)
