"""Host memory of an engine: plain bytes by block hash, with the tags of their scopes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from scopekv.core.chains import Tag


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
