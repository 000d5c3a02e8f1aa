"""Which chunks leave host memory: ScopeKV's eviction in the place of vLLM's LRU (L11)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from vllm.v1.kv_offload.cpu.policies.base import CachePolicy, ChunkStatus

from scopekv.core.eviction import Entry, LearnedReuse, ScopedPolicy, Shares
from scopekv.core.leases import NOBODY
from scopekv.engines.vllm.plugin import installed_guard


class ScopedHostPolicy(CachePolicy):
    """Counts in chunks, all of one size. A chunk that is written or read is pinned."""

    def __init__(self, cache_capacity: int) -> None:
        super().__init__(cache_capacity)
        self.clear()
        self._context: Any = None

    def held(self) -> Collection[bytes]:
        """The keys of all chunks that are here, ready or not."""
        return self._chunks.keys()

    def get(self, key: Any) -> ChunkStatus | None:
        return self._chunks.get(key)

    def serve(self, req_context: Any) -> None:
        """Say for which request chunks come from now on: whose share they fill."""
        self._context = req_context

    def on_store_miss(self, keys: Iterable[Any], req_context: Any) -> None:
        """Nothing to learn: a chunk's place is known from its request when it is inserted."""

    def insert(self, key: Any, chunk: ChunkStatus, req_context: Any = None) -> None:
        """Add a chunk that is being written. `req_context` came with vLLM 0.33."""
        del req_context
        self._policy.remove(bytes(key))  # offered twice at once: the later counts
        self._chunks[key] = chunk
        self._policy.insert(bytes(key), self._entry(bytes(key)))
        self._policy.pin(bytes(key))

    def _entry(self, key: bytes) -> Entry[bytes]:
        """Whose share the chunk fills, which comes before it, what making it again would cost."""
        guard, context = installed_guard(), self._context
        tiers = guard.tiers if guard is not None else None
        if guard is None or tiers is None or context is None:
            return Entry(NOBODY, None, 0, 1, 0.0)
        chain, parent, depth = tiers.place_of(key, context)
        account = guard.keyring.account(chain) if chain and guard.keyring is not None else None
        return Entry(account or NOBODY, parent, depth, 1, tiers.planner.chunk_cost(depth))

    def _asking(self) -> bytes:
        guard, context = installed_guard(), self._context
        asked = (
            guard.tiers.requests.get(context.req_id) if guard and guard.tiers and context else None
        )
        if asked is None or not asked.grants or guard is None or guard.keyring is None:
            return NOBODY
        return guard.keyring.account(asked.whole_chain()) or NOBODY

    def remove(self, key: Any) -> None:
        self._chunks.pop(key, None)
        self._policy.remove(bytes(key))

    def touch(self, keys: Iterable[Any], req_context: Any) -> None:
        del req_context
        for key in keys:
            self._policy.touch(bytes(key))

    def evict(self, n: int, protected: set[Any]) -> list[tuple[Any, ChunkStatus]] | None:
        """Take out at least `n` chunks; None, and nothing changed, where that would be unfair."""
        victims = self._policy.victims(n, self._asking(), {bytes(key) for key in protected})
        if victims is None:
            return None
        evicted = [(key, self._chunks[key]) for key in victims]
        for key, _ in evicted:
            self.remove(key)
        return evicted

    def clear(self) -> None:
        self._chunks: dict[bytes, ChunkStatus] = {}
        capacity = max(1, self.cache_capacity)
        self._policy: ScopedPolicy[bytes] = ScopedPolicy(Shares(capacity), LearnedReuse(capacity))

    def mark_evictable(self, key: Any) -> None:
        self._policy.unpin(bytes(key))

    def mark_non_evictable(self, key: Any) -> None:
        self._policy.pin(bytes(key))
