"""Putting a world together: the one place of these tests that touches vLLM's constructors.

Everything is the real thing but three: host memory is an anonymous map, object stores are in
memory, and the clock of requests' patience moves when a test says so.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from vllm.utils.hashing import sha256_cbor
from vllm.v1.core import kv_cache_utils
from vllm.v1.core.block_pool import BlockPool
from vllm.v1.kv_offload.tiering.manager import CPUPrimaryTierOffloadingManager
from vllm.v1.request import Request

from scopekv.core.eviction import ScopedPolicy, Shares
from scopekv.engines.vllm.offloading import requests
from scopekv.engines.vllm.offloading import tier as tier_module
from scopekv.engines.vllm.offloading.manager import ScopedOffloadingManager
from scopekv.engines.vllm.offloading.spec import HOST_POLICY
from scopekv.engines.vllm.offloading.tier import SealedTierManager
from scopekv.engines.vllm.plugin import Guard, judged_first, scoped_extra_keys
from scopekv.simulate.object_store import SimulatedObjectStore
from scopekv.store.keyring import Keyring
from scopekv.store.settings import TierSettings
from scopekv.store.tier import SealedTier
from tests.engine.offloading.parts import (
    CAPACITY_BYTES,
    CHUNK_TOKENS,
    ROW_BYTES,
    Clock,
    Leases,
    until,
)
from tests.engine.offloading.world import World


class Memory:
    """Host memory, as vLLM's primary tier takes it."""

    def __init__(self, chunks: int) -> None:
        self._map = mmap.mmap(-1, chunks * ROW_BYTES)
        self._chunks = chunks

    def create_kv_memoryview(self) -> memoryview:
        return memoryview(self._map).cast("B", shape=[self._chunks, ROW_BYTES])

    def cleanup(self) -> None:
        """The map goes with the process."""


def build(
    guard: Guard,
    clock: Clock,
    *,
    chunks: int = 64,
    stores: int = 1,
    shared: bool = False,
    broker: bool = True,
) -> World:
    """Put an engine's scheduler side together. `stores`: how many outer tiers."""
    leases = Leases()
    guard.keyring = Keyring(leases) if broker else None
    made = [SimulatedObjectStore() for _ in range(stores)]
    coming = iter(made)

    def open_simulated(url: str, *, capacity_bytes: int, state_dir: object, **given: Any) -> Any:
        policy: ScopedPolicy[Any] = ScopedPolicy(Shares(capacity_bytes))
        settings = TierSettings(capacity_bytes=capacity_bytes, shared=shared, stall_seconds=60.0)
        return SealedTier(next(coming), settings=settings, policy=policy, **given)

    primary = CPUPrimaryTierOffloadingManager(chunks, Memory(chunks), *HOST_POLICY)
    view = primary.get_kv_memoryview()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tier_module, "open_tier", open_simulated)
        tiers = [SealedTierManager(None, view, "sealed", "", CAPACITY_BYTES) for _ in made]
    manager = ScopedOffloadingManager(
        primary, tiers, guard=guard, hashes_per_chunk=1, tokens_per_chunk=CHUNK_TOKENS, groups=1
    )
    hasher = kv_cache_utils.get_request_block_hasher(CHUNK_TOKENS, sha256_cbor)
    pool = BlockPool(256, enable_caching=True, hash_block_size=CHUNK_TOKENS)
    world = World(guard, leases, clock, hasher, made, pool, manager)
    for index, one in enumerate(tiers):
        one.medium_name = f"tier{index}"
        until(lambda one=one: one.sealed.ready, "the first listing")  # type: ignore[misc]
    return world


@contextmanager
def installed(guard: Guard) -> Iterator[Clock]:
    """The plugin where vLLM hashes blocks and makes requests; yields the requests' clock."""
    kv_cache_utils.init_none_hash(sha256_cbor)
    name, clock = "generate_block_hash_extra_keys", Clock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kv_cache_utils, name, scoped_extra_keys(guard, getattr(kv_cache_utils, name)))
        judged = judged_first(guard, Request.update_block_hashes)
        patch.setattr(Request, "update_block_hashes", judged)
        patch.setattr(requests, "time", clock)
        yield clock
