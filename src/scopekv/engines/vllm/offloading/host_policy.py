"""Which chunks leave host memory: ScopeKV's eviction in the place of vLLM's LRU (L11)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from vllm.v1.kv_offload.cpu.policies.base import CachePolicy, ChunkStatus

from scopekv.core.eviction import Entry, ScopedPolicy, Shares
from scopekv.engines.vllm.plugin import installed_guard

NOBODY = bytes(16)  # whose share is not known yet: a lease comes after its request's first lookup


class ScopedHostPolicy(CachePolicy):
    """Counts in chunks, all of one size. A chunk that is written or read is pinned."""

    def __init__(self, cache_capacity: int) -> None:
        super().__init__(cache_capacity)
        self._chunks: dict[bytes, ChunkStatus] = {}
        self._policy: ScopedPolicy[bytes] = ScopedPolicy(Shares(max(1, cache_capacity)))
        self._coming: dict[bytes, Entry[bytes]] = {}
        self._asking = NOBODY

    def held(self) -> Collection[bytes]:
        """The keys of all chunks that are here, ready or not."""
        return self._chunks.keys()

    def get(self, key: Any) -> ChunkStatus | None:
        return self._chunks.get(key)

    def on_store_miss(self, keys: Iterable[Any], req_context: Any) -> None:
        """Learn whose the chunks are that may be inserted next, and which come before which."""
        self._coming.clear()
        guard = installed_guard()
        tiers = guard.tiers if guard is not None else None
        positions = req_context._offload_key_positions
        at = {(end, bytes(key[-4:])): bytes(key) for key, end in positions.items()}
        for key in keys:
            chain = tiers.chain_of(key, req_context) if tiers is not None else None
            account = NOBODY
            if chain is not None and guard is not None and guard.keyring is not None:
                account = guard.keyring.account(chain) or NOBODY
            end, size = positions.get(key), tiers.planner.chunk_tokens if tiers is not None else 1
            depth = end // size - 1 if end is not None else 0
            parent = at.get((end - size, bytes(key[-4:]))) if end is not None else None
            cost = tiers.planner.chunk_cost(depth) if tiers is not None else 0.0
            self._coming[bytes(key)] = Entry(account, parent, max(0, depth), 1, cost)
            self._asking = account

    def insert(self, key: Any, chunk: ChunkStatus, req_context: Any = None) -> None:
        """Add a chunk that is being written. `req_context` came with vLLM 0.33."""
        del req_context
        entry = self._coming.pop(bytes(key), None) or Entry(NOBODY, None, 0, 1, 0.0)
        self._chunks[key] = chunk
        self._policy.insert(bytes(key), entry)
        self._policy.pin(bytes(key))

    def remove(self, key: Any) -> None:
        self._chunks.pop(key, None)
        self._policy.remove(bytes(key))

    def touch(self, keys: Iterable[Any], req_context: Any) -> None:
        del req_context
        for key in keys:
            self._policy.touch(bytes(key))

    def evict(self, n: int, protected: set[Any]) -> list[tuple[Any, ChunkStatus]] | None:
        """Take out at least `n` chunks; None, and nothing changed, where that would be unfair."""
        victims = self._policy.victims(n, self._asking, {bytes(key) for key in protected})
        if victims is None:
            return None
        evicted = [(key, self._chunks[key]) for key in victims]
        for key, _ in evicted:
            self.remove(key)
        return evicted

    def clear(self) -> None:
        self.__init__(self.cache_capacity)  # type: ignore[misc]

    def mark_evictable(self, key: Any) -> None:
        self._policy.unpin(bytes(key))

    def mark_non_evictable(self, key: Any) -> None:
        self._policy.pin(bytes(key))
