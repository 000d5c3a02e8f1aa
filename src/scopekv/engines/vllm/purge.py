"""Making an engine forget: revoked scopes, and blocks whose time is over.

Runs between two steps of the engine, in its own process. A purge is asked again until nothing is
busy; meanwhile the fence keeps later requests off, so what is left is read by nobody new.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from scopekv.core.chains import Chain, Link, Tag, tag
from scopekv.core.scopes import ScopeId
from scopekv.engines.vllm import compat

if TYPE_CHECKING:
    from scopekv.engines.vllm.plugin import Guard

LINKS_MAX = 100_000
CHAINS_MAX = 50_000
UNLEASED_SECONDS = 3600  # where the broker never said: the safe side
Line = dict[str, Any]


class Purger:
    """Purges and retention for one engine core."""

    def __init__(self, core: Any, guard: Guard) -> None:
        self._core = core
        self._guard = guard
        self._retention: dict[Chain, int] = {}

    def fence(self, pairs: Sequence[Sequence[Any]]) -> frozenset[Tag]:
        """Let these (scope id hex, epoch) count no more; return their tags."""
        links = [Link(ScopeId(bytes.fromhex(scope)), int(epoch)) for scope, epoch in pairs]
        self._guard.fences.raise_above(links, time.monotonic_ns() // 1_000_000)
        tags = frozenset(tag(link) for link in links)
        if self._guard.keyring is not None:
            self._guard.keyring.fence(tags)
        return tags

    def purge(self, pairs: Sequence[Sequence[Any]]) -> dict[str, Any]:
        """Fence, then drop what is here of these scopes; a line for each tier.

        A line: {"tier", "removed", "busy", "error"}; `busy` counts what must be asked for again.
        """
        tags = self.fence(pairs)
        hashes = self._guard.blocks.tagged(tags) if self._guard.blocks is not None else []
        removed = self.evict(hashes)
        lines = [line("engine", removed, self._running(tags))]
        tiers = self._guard.tiers
        if tiers is not None:
            lines.append(line("host", *tiers.purge_host(tags)))
            for tier in tiers.secondary_tiers:
                purged = tier.sealed.purge(tags)
                lines.append(line(tier.medium_name, purged.removed, purged.busy, purged.error))
        if compat.foreign_connectors(self._core.vllm_config):
            lines.append(line("connector", 0, 0, "a KV connector that is not ScopeKV's"))
        if not any(line["busy"] for line in lines[:2]) and self._guard.blocks is not None:
            self._guard.blocks.forget(hashes)
        return {"lines": lines}

    def expire(self) -> dict[str, Any]:
        """Drop the blocks that were kept as long as their scopes allow; say how many."""
        blocks = self._guard.blocks
        if blocks is None:
            return {"lines": []}
        over = {
            key for key, origin in blocks.items() if blocks.age(origin) > self._kept(origin.chain)
        }
        lines = [line("engine", self.evict(list(over)), 0)]
        tiers = self._guard.tiers
        busy = 0
        if tiers is not None:
            removed, busy = tiers.expire_host(over)
            lines.append(line("host", removed, busy))
        coming = {
            bytes(block_hash)
            for request in self._open_requests()
            for block_hash in request.block_hashes
        }
        if not busy:
            blocks.forget(list(over - coming))  # what may still be stored is found again
        blocks.prune(lambda one: one in coming or self._held(one), 4 * self._pool.num_gpu_blocks)
        if self._guard.keyring is not None:
            self._guard.keyring.sweep()  # a tier's janitor does, where there is one
        return {"lines": lines}

    def forget_engine(self, kept: Collection[int]) -> tuple[int, int]:
        """Take every block out of the prefix cache but those of the ids `kept`.

        Return (removed, busy): blocks that a request holds now stay, and are busy.
        """
        found = [
            block
            for held in list(self._pool.cached_block_hash_to_block._cache.values())
            for block in (held.values() if type(held) is dict else (held,))
            if block.block_id not in kept
        ]
        free = {block.block_id for block in found if block.ref_cnt == 0}
        self._pool.evict_blocks(free)
        return len(free), len(found) - len(free)

    def evict(self, hashes: Sequence[bytes]) -> int:
        """Take these blocks out of the prefix cache, duplicates too; return how many."""
        pool = self._pool
        groups = range(len(self._core.scheduler.kv_cache_config.kv_cache_groups))
        removed = 0
        for block_hash in hashes:
            for group in groups:
                while (cached := pool.get_cached_block(block_hash, [group])) is not None:
                    pool.evict_blocks({cached[0].block_id})
                    removed += 1
        return removed

    def _kept(self, chain: Chain) -> int:
        """How many seconds blocks of this chain may stay, as last leased."""
        keyring = self._guard.keyring
        leased = keyring.retention(chain) if keyring is not None else None
        if leased is not None:
            if len(self._retention) >= CHAINS_MAX:
                self._retention.clear()
            self._retention[chain] = leased
        return self._retention.get(chain, UNLEASED_SECONDS)

    def _held(self, block_hash: bytes) -> bool:
        if self._pool.get_cached_block(block_hash, [0]) is not None:
            return True
        tiers = self._guard.tiers
        return tiers is not None and tiers.host_holds(block_hash)

    def _running(self, tags: frozenset[Tag]) -> int:
        """How many open requests have one of these scopes."""
        tickets = [self._guard.verdict(request).ticket for request in self._open_requests()]
        return sum(
            any(tag(Link(grant.scope, grant.epoch)) in tags for grant in ticket.grants)
            for ticket in tickets
            if ticket is not None
        )

    def _open_requests(self) -> list[Any]:
        """Requests that may still cache blocks, here or in host memory.

        vLLM stores the last blocks of a finished request with its next step.
        """
        tiers = self._guard.tiers
        stored = [one.request for one in tiers.requests.values()] if tiers is not None else []
        found = (*self._guard.live_requests(), *stored)
        return list({id(one): one for one in found if one is not None}.values())

    @property
    def _pool(self) -> Any:
        return self._core.scheduler.kv_cache_manager.block_pool


def line(tier: str, removed: int, busy: int, error: str | None = None) -> Line:
    """What one tier answers to a purge; `busy` counts what must be asked for again."""
    return {"tier": tier, "removed": removed, "busy": busy, "error": error}
