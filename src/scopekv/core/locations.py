"""The location index: which instance holds which block, and in what medium.

    short hash ──▶ mask of bits, one bit for each (instance, medium) that holds the block

    locate(chain)    masks of blocks 0, 1, 2, ... as stretches of equal ones; for each instance,
                     engine memory ends where its bit is missing, there host memory takes over,
                     then the nearest tier that has the block
    shared store     a place of every instance that shares it, whoever of them put the block there

A block is found by its scoped hash alone, so a look-up takes a chain that only a caller with every
scope in it can make (L4). To forget an instance or a medium takes a fresh bit and drops the old one
later, in slices (`tidy`), so it costs nothing at that moment.

Bounded: at most `blocks_max` distinct blocks. Where it is full, blocks not known yet are left out,
so that an instance looks emptier than it is, never fuller, and `partial` says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from functools import reduce
from itertools import groupby, islice, repeat, takewhile
from operator import or_
from typing import Any, NamedTuple

from scopekv.core.block_table import SLICE, BlockTable
from scopekv.core.events import Medium, OuterTier, OuterTiers
from scopekv.errors import Misuse

__all__ = ["SLICE", "Load", "LocationIndex", "Reach"]

# A block that is held anywhere: its entry in the table and its key, as measured by
# benchmarks/index.py, with the room that a growing table has.
BLOCK_BYTES = 120
BYTES_MAX = 256 << 20


class Reach(NamedTuple):
    """How many leading blocks of a chain an instance has in memory, and what its tiers have next.

    Up to `engine` in engine memory; on to `host` in host memory; then runs of so many chunks.
    """

    engine: int
    host: int
    tiers: tuple[tuple[Medium, int], ...] = ()


class _Held(NamedTuple):
    """Bits of an instance's memory, and of its tiers, nearest first, with all who share each."""

    engine: int
    host: int
    chunk_tokens: int
    tiers: tuple[tuple[Medium, int], ...]


class LocationIndex:
    """Short hashes to places. Changed and read in one thread."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        if bytes_max < 1 << 20:
            raise Misuse(f"a location index takes 1 MiB or more, not {bytes_max} bytes")
        self.left_out = 0  # additions that found no room
        self._table = BlockTable(bytes_max // BLOCK_BYTES)
        self._bits: dict[str, list[int]] = {}
        self._tiers: dict[str, OuterTiers] = {}
        self._held: dict[str, _Held] = {}  # see `_where`
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
            self._held.clear()

    def forget(self, name: str) -> None:
        """The instance holds nothing from now on. Cost: none that grows with what it held."""
        for medium in Medium:
            self.clear(name, medium)
        self._partial.discard(name)

    def told(self, name: str, tiers: OuterTiers | None) -> None:
        """Which tiers the instance has, and with whom it shares them. None: no host memory."""
        self._held.clear()
        if tiers is None:
            self._tiers.pop(name, None)
        else:
            self._tiers[name] = tiers

    def leave(self, name: str) -> None:
        """Forget the instance altogether."""
        self._held.clear()
        self._tiers.pop(name, None)
        for bit in self._bits.pop(name, ()):
            self._table.retire(bit)
        self._partial.discard(name)

    def clear(self, name: str, medium: Medium) -> None:
        """One medium of the instance holds nothing from now on."""
        bits = self._bits[name]
        if self._table.size(bits[medium]):
            self._table.retire(bits[medium])
            bits[medium] = self._table.fresh()
            self._held.clear()

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

    def locate(
        self, chain: Sequence[int], names: Iterable[str], block_tokens: int
    ) -> dict[str, Reach]:
        """How far each of these instances has this chain of short hashes.

        As vLLM reads: engine memory up to the first block that is missing there, host memory from
        that block on, tiers from the first chunk that host memory lacks. `block_tokens`: of a
        block. Cost: a dictionary look-up a block; for each instance, its chunks beyond the engine.
        """
        where = self._where()
        wanted = [(name, where[name]) for name in names]
        masks = list(map(self._table.look_up, chain, repeat(0)))
        engines, distinct = _engine_ends(masks, {held.engine for _, held in wanted}), set(masks)
        found: dict[str, Reach] = {}
        beyond: dict[int, int] = {}  # all bits of blocks after so many
        alike: dict[Any, Reach] = {}  # instances that hold the same there reach as far
        for name, (bit, host, chunk_tokens, tiers) in wanted:
            engine, size = engines[bit], chunk_tokens // block_tokens or 1
            start = engine - engine % size
            after = beyond.get(start)
            if after is None:
                after = beyond[start] = reduce(or_, masks[start:], 0)
            places = [(m, own) for m, bits in tiers if (own := bits & after)] if after else ()
            key = engine, size, host & after, tuple(places)
            reach = alike.get(key)
            if reach is None:
                reach = alike[key] = _reach(masks, distinct, *key)
            found[name] = reach
        return found

    def _where(self) -> dict[str, _Held]:
        """Each instance's bits. Kept until any instance, its tiers or one of its bits changes."""
        if not self._held:
            stores: dict[bytes, int] = {}
            for one, tiers in self._tiers.items():
                for tier in filter(_is_shared, tiers.nearest):
                    stores[tier.store] = stores.get(tier.store, 0) | self._bits[one][tier.medium]
            for one, bits in self._bits.items():
                told = self._tiers.get(one)
                size, outer = (told.chunk_tokens, told.nearest) if told is not None else (1, ())
                nearest = tuple((t.medium, stores.get(t.store, bits[t.medium])) for t in outer)
                self._held[one] = _Held(bits[Medium.ENGINE], bits[Medium.HOST], size, nearest)
        return self._held

    def contents(self, name: str, medium: Medium) -> Counter[int]:
        """All blocks of a medium with how often each is held. Cost: a pass over the index."""
        return self._table.contents(self._bits[name][medium])

    def tidy(self) -> bool:
        """Drop a slice of what was forgotten; return whether more is left."""
        return self._table.tidy()


def _engine_ends(masks: Sequence[int], bits: Collection[int]) -> dict[int, int]:
    """Where engine memory ends: all instances at once, while any has the next block."""
    ends = dict.fromkeys(bits, len(masks))
    wanted = sum(bits)
    for index, mask in enumerate(masks):
        if missing := wanted & ~mask:
            wanted ^= missing
            while missing:
                bit = missing & -missing
                missing ^= bit
                ends[bit] = index
            if not wanted:
                break
    return ends


def _is_shared(tier: OuterTier) -> bool:
    return bool(tier.store)


def _reach(
    masks: Sequence[int],
    distinct: Collection[int],
    engine: int,
    size: int,
    host: int,
    places: Sequence[tuple[Medium, int]],
) -> Reach:
    """How far who has the chain's first `engine` blocks in memory gets from there.

    `size`: blocks of a chunk. `host`, `places`: bits of its host memory and of its tiers.
    """
    chunks = masks[size - 1 :: size]
    at = first = engine // size
    if host:
        in_host = {mask for mask in distinct if mask & host}
        at += len(list(takewhile(in_host.__contains__, islice(chunks, first, None))))
    runs = _runs(chunks[at:], places, distinct) if places else ()
    return Reach(engine, max(engine, at * size), runs)


def _runs(
    chunks: Sequence[int], places: Sequence[tuple[Medium, int]], distinct: Collection[int]
) -> tuple[tuple[Medium, int], ...]:
    """Each chunk comes from the first place that has it; the first that none has ends it."""
    nearest = {mask: next((one for one, bits in places if mask & bits), None) for mask in distinct}
    runs = []
    for medium, same in groupby(map(nearest.__getitem__, chunks)):
        if medium is None:
            break
        runs.append((medium, len(list(same))))
    return tuple(runs)


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
        index._held.clear()
        for bit in old:
            index._table.retire(bit)
        index._partial.discard(name)
        if self._left_out:
            index.left_out += self._left_out
            index._partial.add(name)

    def abandon(self) -> None:
        for bit in self._bits:
            self._index._table.retire(bit)
