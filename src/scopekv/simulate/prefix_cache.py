"""A prefix cache as vLLM's, without a model: chained block hashes, least recently used goes first.

A block's content stands for its keys and values: a digest over all token ids up to its end, made
when the block is computed and read back on a hit. Whoever hits a block of other tokens therefore
answers with other words than whoever computes, and a test sees it.
"""

from __future__ import annotations

import hashlib
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NewType

from scopekv.core.block_hashes import ChainHasher, root_of
from scopekv.core.encoding import encode, encode_tokens
from scopekv.errors import Misuse

BlockHash = NewType("BlockHash", bytes)  # 32 bytes
Content = NewType("Content", bytes)  # 32 bytes
ExtraKeys = Callable[[int, int], tuple[tuple[str, str], ...]]  # of the block of tokens [start, end)
Told = Callable[[BlockHash, bool], None]  # a block came (True) or left

NOTHING = Content(b"")


@dataclass(frozen=True, slots=True)
class Prefill:
    """What a prompt found in the cache, and what computing the rest gave."""

    cached_tokens: int
    content: Content


class PrefixCache:
    """Blocks of one engine. Conservation: at most `blocks_max` blocks, pinned ones included."""

    def __init__(self, *, block_size: int, blocks_max: int) -> None:
        if block_size < 1 or blocks_max < 1:
            raise Misuse("a cache has blocks of at least one token, and at least one block")
        self.block_size, self.blocks_max = block_size, blocks_max
        self._blocks: OrderedDict[BlockHash, Content] = OrderedDict()
        self._pins: Counter[BlockHash] = Counter()
        self._hasher, self.root = ChainHasher(), root_of()
        self.told: Told | None = None  # as vLLM's events: not of `clear`

    def __len__(self) -> int:
        return len(self._blocks)

    def hashes(self, token_ids: Sequence[int], extra_keys: ExtraKeys) -> list[BlockHash]:
        """The hashes of the whole blocks of `token_ids`, exactly as vLLM makes them."""
        parent, found = self.root, []
        for start in range(0, len(token_ids) - self.block_size + 1, self.block_size):
            end = start + self.block_size
            parent = self._hasher.block(parent, token_ids[start:end], extra_keys(start, end))
            found.append(BlockHash(parent))
        return found

    def prefill(self, token_ids: Sequence[int], hashes: Sequence[BlockHash]) -> Prefill:
        """Read the longest cached prefix, compute the rest, keep every whole block.

        As in vLLM the last token is always computed, so a block that ends with it is not read.
        """
        content, hits = NOTHING, 0
        for block_hash in hashes[: max(0, len(token_ids) - 1) // self.block_size]:
            held = self._blocks.get(block_hash)
            if held is None:
                break
            self._blocks.move_to_end(block_hash)
            content, hits = held, hits + 1
        for index in range(hits, len(hashes)):
            start = index * self.block_size
            content = _computed(content, token_ids[start : start + self.block_size])
            self._keep(hashes[index], content)
        rest = token_ids[len(hashes) * self.block_size :]
        return Prefill(hits * self.block_size, _computed(content, rest))

    def held(self, hashes: Sequence[BlockHash]) -> list[BlockHash]:
        """The leading hashes whose blocks are here."""
        found = []
        for block_hash in hashes:
            if block_hash not in self._blocks:
                break
            found.append(block_hash)
        return found

    def get(self, block_hash: BlockHash) -> Content | None:
        """The content of a block, if it is here. No use of it."""
        return self._blocks.get(block_hash)

    def put(self, block_hash: BlockHash, content: Content) -> None:
        """Keep a block that a tier had."""
        self._keep(block_hash, content)

    def pin(self, hashes: Sequence[BlockHash]) -> None:
        """Keep these blocks until as many `unpin`. They must be `held`."""
        self._pins.update(hashes)

    def unpin(self, hashes: Sequence[BlockHash]) -> None:
        """Give back what `pin` took."""
        self._pins.subtract(hashes)
        self._pins += Counter()  # drops those at zero

    def remove(self, hashes: Sequence[BlockHash]) -> int:
        """Forget these blocks, pinned ones too; return how many were here."""
        return sum(self._drop(block_hash) for block_hash in hashes)

    def unpinned(self) -> list[BlockHash]:
        """Every block that is here and that nobody pinned."""
        return [name for name in self._blocks if name not in self._pins]

    def all(self) -> list[BlockHash]:
        """Every block that is here, the least recently used first."""
        return list(self._blocks)

    def clear(self) -> None:
        """Forget every block and pin, as a restart does."""
        self._blocks.clear()
        self._pins.clear()

    def _keep(self, block_hash: BlockHash, content: Content) -> None:
        if block_hash not in self._blocks and len(self._blocks) >= self.blocks_max:
            oldest = next((name for name in self._blocks if name not in self._pins), None)
            if oldest is None:
                return  # everything is pinned: computed, not kept
            self._drop(oldest)
        if self.told is not None and block_hash not in self._blocks:
            self.told(block_hash, True)
        self._blocks[block_hash] = content
        self._blocks.move_to_end(block_hash)

    def _drop(self, block_hash: BlockHash) -> bool:
        """Whether there was such a block."""
        if self._blocks.pop(block_hash, None) is None:
            return False
        if self.told is not None:
            self.told(block_hash, False)
        return True


def _computed(before: Content, token_ids: Sequence[int]) -> Content:
    message = encode("scopekv/simulated content/1", before, encode_tokens(token_ids))
    return Content(hashlib.sha256(message).digest())
