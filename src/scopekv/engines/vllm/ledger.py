"""Which scopes a cached block of this engine was made under: what a purge and retention go by.

vLLM keeps hashes alone, and a hash does not tell its scopes. Only blocks under a verified ticket
are here; those of other requests are read by nobody again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from scopekv.core.chains import Chain, Tag, chain_at, tag
from scopekv.core.tickets import Grant


@dataclass(frozen=True, slots=True)
class Origin:
    """The chain of a block, its tags, and when it was first hashed (by the ledger's clock)."""

    chain: Chain
    tags: frozenset[Tag]
    born: float


def boottime() -> float:
    """Monotonic seconds that go on while the machine sleeps: so does retention."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class BlockLedger:
    """Block hash to origin. Thread-safe: vLLM hashes on two threads."""

    def __init__(self, block_size: int, monotonic: Callable[[], float] = boottime) -> None:
        self._block_size = block_size
        self._monotonic = monotonic
        self._origins: dict[bytes, Origin] = {}
        self._tags: dict[Chain, frozenset[Tag]] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._origins)

    def note(self, hashes: Sequence[bytes], first: int, grants: Sequence[Grant]) -> None:
        """Keep the origin of blocks `first`, `first + 1`, ... of one request. Cost: one step each.

        A block met again keeps its age: its bytes may be the old ones.
        """
        now, size = self._monotonic(), self._block_size
        at, last = first, first + len(hashes)
        with self._lock:
            for grant in grants:
                stop = last if grant.end is None else min(last, grant.end // size)
                if stop <= at:
                    continue
                chain = chain_at(grants, (at + 1) * size)
                origin = Origin(chain, self._tags_of(chain), now)
                for block_hash in hashes[at - first : stop - first]:
                    self._origins.setdefault(bytes(block_hash), origin)
                at = stop

    def _tags_of(self, chain: Chain) -> frozenset[Tag]:
        tags = self._tags.get(chain)
        if tags is None:
            if len(self._tags) > 50_000:
                self._tags.clear()
            tags = self._tags[chain] = frozenset(tag(link) for link in chain)
        return tags

    def age(self, origin: Origin) -> float:
        """Seconds since the block was first hashed."""
        return self._monotonic() - origin.born

    def get(self, block_hash: bytes) -> Origin | None:
        return self._origins.get(bytes(block_hash))

    def tagged(self, tags: frozenset[Tag]) -> list[bytes]:
        """The hashes of all blocks that one of these tags covers. Cost: a pass over all."""
        with self._lock:
            return [
                key for key, origin in self._origins.items() if not origin.tags.isdisjoint(tags)
            ]

    def items(self) -> Iterator[tuple[bytes, Origin]]:
        with self._lock:
            return iter(list(self._origins.items()))

    def forget(self, hashes: Sequence[bytes]) -> None:
        with self._lock:
            for block_hash in hashes:
                self._origins.pop(block_hash, None)

    def prune(self, held: Callable[[bytes], bool], entries_max: int) -> None:
        """Forget what no cache holds, once there are more than `entries_max`."""
        if len(self._origins) > entries_max:
            self.forget([key for key, _ in self.items() if not held(key)])
