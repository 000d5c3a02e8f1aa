"""What one engine process holds in memory: engine memory, host memory, whose blocks they are."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from scopekv.core.block_hashes import short
from scopekv.core.chains import Tag
from scopekv.core.events import Medium
from scopekv.engines.vllm.ledger import BlockLedger
from scopekv.simulate.fuzz.bus import Publisher
from scopekv.simulate.fuzz.flight import BLOCK_TOKENS
from scopekv.simulate.prefix_cache import BlockHash, PrefixCache


@dataclass(frozen=True, slots=True)
class Sizes:
    """Blocks that fit."""

    cache_blocks: int
    host_blocks: int


class HostMemory:
    """At most `blocks_max` blocks; the least recently used goes first."""

    def __init__(self, blocks_max: int, told: Callable[[bytes, bool], None]) -> None:
        self.blocks_max = blocks_max
        self._told = told
        self._blocks: OrderedDict[bytes, tuple[bytes, frozenset[Tag]]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._blocks)

    def get(self, block_hash: bytes) -> bytes | None:
        found = self._blocks.get(block_hash)
        if found is None:
            return None
        self._blocks.move_to_end(block_hash)
        return found[0]

    def put(self, block_hash: bytes, content: bytes, tags: frozenset[Tag]) -> None:
        if block_hash not in self._blocks:
            if len(self._blocks) >= self.blocks_max:
                self._told(self._blocks.popitem(last=False)[0], False)
            self._told(block_hash, True)
        self._blocks[block_hash] = (content, tags)
        self._blocks.move_to_end(block_hash)

    def purge(self, tags: frozenset[Tag]) -> int:
        gone = [name for name, (_, own) in self._blocks.items() if not own.isdisjoint(tags)]
        for name in gone:
            del self._blocks[name]
            self._told(name, False)
        return len(gone)

    def clear(self) -> None:
        self._blocks.clear()

    def all(self) -> list[bytes]:
        return list(self._blocks)


class Memory:
    """Both memories of an engine. Everything that comes or leaves is told on the bus."""

    def __init__(self, sizes: Sizes, wall: Callable[[], float], mono: Callable[[], float]) -> None:
        self.bus = Publisher(wall, self._held)
        self.cache = PrefixCache(block_size=BLOCK_TOKENS, blocks_max=sizes.cache_blocks)
        self.host = HostMemory(sizes.host_blocks, self.bus.teller(Medium.HOST))
        self._mono = mono
        self.start()

    def start(self) -> None:
        """A new life of the process: nothing is held, and no event says so."""
        self._empty_cache()
        self.host.clear()
        self.origins = BlockLedger(BLOCK_TOKENS, self._mono)

    def reset(self, *, host: bool) -> None:
        """Empty engine memory, and host memory too or not: the events are the same."""
        self._empty_cache()
        if host:
            self.host.clear()
        self.bus.cleared()

    def purge(self, tags: frozenset[Tag], *, busy: bool) -> tuple[int, int]:
        """Drop what is of these scopes; blocks in engine memory and in host memory.

        While requests of them are `busy`, what they leave behind must be found again.
        """
        hashes = self.origins.tagged(tags)
        removed = self.cache.remove([BlockHash(one) for one in hashes])
        if not busy:
            self.origins.forget(hashes)
        return removed, self.host.purge(tags)

    def tags(self, block_hash: bytes) -> frozenset[Tag]:
        """Under which scopes a block is, kept with it in host memory."""
        origin = self.origins.get(block_hash)
        return origin.tags if origin is not None else frozenset()

    def truth(self, medium: Medium) -> Counter[int]:
        """What a medium holds, by short hash."""
        return Counter(self._held()[medium])

    def _held(self) -> dict[Medium, list[int]]:
        return {
            Medium.ENGINE: [short(one) for one in self.cache.all()],
            Medium.HOST: [short(one) for one in self.host.all()],
        }

    def _empty_cache(self) -> None:
        self.cache.told = None
        self.cache.clear()
        self.cache.told = self.bus.teller(Medium.ENGINE)
