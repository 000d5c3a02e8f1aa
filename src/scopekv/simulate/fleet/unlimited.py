"""What infinite memory would find: the bound that isolation, and nothing else, sets.

Exact up to a number of blocks. Beyond it, blocks are counted by a fixed sample of all names
(SHARDS, Waldspurger et al. 2015), a half, a quarter and so on, so that memory stays bounded. With
chained names a seen block's parents were seen, so each block counts by itself and the sample is
without bias.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from scopekv.errors import Misuse

BLOCKS_MAX = 1 << 22
_ODD = 0x9E3779B97F4A7C15
_BITS = 64
_MASK = (1 << _BITS) - 1


class Unlimited:
    """A cache that forgets nothing."""

    __slots__ = ("_max", "_seen", "_shift", "hit_tokens", "input_tokens")

    def __init__(self, blocks_max: int = BLOCKS_MAX) -> None:
        if blocks_max < 1:
            raise Misuse("the bound needs room for 1 block or more")
        self._max, self._shift = blocks_max, 0
        self._seen: set[int] = set()
        self.hit_tokens = self.input_tokens = 0

    @property
    def sampled(self) -> float:
        """The part of all blocks that is counted; 1.0: exact."""
        return 1.0 / (1 << self._shift)

    @property
    def token_hit_rate(self) -> float:
        return min(1.0, self.hit_tokens / max(1, self.input_tokens))

    def take(self, names: Sequence[int], block_tokens: int, input_tokens: int) -> int:
        """Read one prompt and keep it; return the tokens found (an estimate once sampled)."""
        seen = self._seen
        self.input_tokens += input_tokens
        if self._shift:
            names = [name for name in names if self._counts(name)]
            found = sum(name in seen for name in names)
            hit = min((found << self._shift) * block_tokens, 1 << 62)
        else:
            found = len(list(takewhile(seen.__contains__, names)))
            hit = min(found * block_tokens, input_tokens)
            names = names[found:]
        self.hit_tokens += hit
        seen.update(names)
        while len(seen) > self._max:
            self._shift += 1
            seen = self._seen = {name for name in seen if self._counts(name)}
        return hit

    def _counts(self, name: int) -> bool:
        return ((hash(name) * _ODD) & _MASK) >> (_BITS - self._shift) == 0
