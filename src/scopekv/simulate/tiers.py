"""Host memory and real sealed tiers behind a simulated engine's prefix cache.

prefix cache ─miss─▶ host memory ─miss─▶ sealed tiers ─miss─▶ compute
     └──────────── whatever was computed is kept in all of them ◀──┘
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Sequence
from typing import Any

from scopekv.core.chains import Chain, Link, Tag, chain_at
from scopekv.core.events import OuterTiers
from scopekv.core.tickets import Grant
from scopekv.simulate.prefix_cache import BlockHash, Content, PrefixCache
from scopekv.store.blocks import Block, Done, Presence
from scopekv.store.keyring import Keyring
from scopekv.store.tier import SealedTier

BLOCK_BYTES = 4096  # of a sealed block; a content of 32 bytes, repeated
WAIT_SECONDS_MAX = 20.0  # for keys, for answers, for bytes: then the blocks are computed
_POLL_SECONDS = 0.001


class SimulatedTiers:
    """The tiers of one engine. One event loop; close it.

    A block comes from the tier that its hash names first, so that every tier serves some.
    """

    def __init__(self, keyring: Keyring, tiers: Sequence[SealedTier], *, host_blocks: int) -> None:
        self.tiers = tuple(tiers)
        self._keyring = keyring
        self.host = PrefixCache(block_size=1, blocks_max=host_blocks)
        self._job_ids = itertools.count(1)
        self._done: dict[int, Done] = {}
        self._storing: set[int] = set()
        self._shut_until: dict[str, float] = {}  # by medium: nothing is fetched before
        self.host_hits = 0

    def counters(self) -> dict[str, int]:
        """Blocks read from each tier so far."""
        loaded = {tier.medium: tier.counters()["loaded"] for tier in self.tiers}
        return {"host": self.host_hits, **loaded}

    async def fetch(
        self,
        cache: PrefixCache,
        hashes: Sequence[BlockHash],
        grants: Sequence[Grant],
        ticket: str,
        current: Callable[[], bool],
    ) -> bool:
        """Bring the leading blocks that tiers have into the cache, while the ticket is `current`.

        Return whether it still is. Waits for keys, answers and bytes, each a bounded time.
        """
        links = [Link(grant.scope, grant.epoch) for grant in grants]
        self._keyring.request(ticket, links)
        chains = [chain_at(grants, (at + 1) * cache.block_size) for at in range(len(hashes))]
        await self._until(lambda: not self._keyring.pending(tuple(links)))
        for at, block_hash in enumerate(hashes):
            if cache.get(block_hash) is not None:
                continue
            content = self._from_host(block_hash)
            if content is None:
                content = await self._from_tiers(chains[at], block_hash)
            if content is None or not current():
                break
            cache.put(block_hash, content)
        return current()

    def keep(
        self, cache: PrefixCache, hashes: Sequence[BlockHash], grants: Sequence[Grant]
    ) -> None:
        """Keep the blocks of a prompt that was just computed in every tier."""
        blocks = []
        for at, block_hash in enumerate(hashes):
            content = cache.get(block_hash)
            if content is None:
                continue
            chain = chain_at(grants, (at + 1) * cache.block_size)
            self.host.put(block_hash, content)
            blocks.append((chain, block_hash, content))
        for tier in self.tiers:
            self._collect(tier)
            self._storing.add(job_id := next(self._job_ids))
            tier.store(job_id, [_block(*block) for block in blocks])

    def places(self, block_size: int) -> OuterTiers:
        """What a location index is told of the tiers: they are tried in order."""
        return OuterTiers(block_size, BLOCK_BYTES, tuple(tier.place() for tier in self.tiers))

    def purge(self, tags: frozenset[Tag], hashes: Sequence[bytes]) -> list[dict[str, Any]]:
        """Forget these (scope, epoch) pairs; a line for each tier. Never blocks.

        `hashes`: of all blocks under them, for host memory.
        """
        removed = self.host.remove([BlockHash(name) for name in hashes])
        lines: list[dict[str, Any]] = [_line("host", removed, 0, None)]
        for tier in self.tiers:
            purged = tier.purge(tags)
            lines.append(_line(tier.medium, purged.removed, purged.busy, purged.error))
        return lines

    def restart(self) -> None:
        """Forget what was in memory."""
        self.host.clear()
        self._shut_until.clear()

    def forget_host(self) -> int:
        """Drop every block of host memory; return how many there were."""
        return self.host.remove(self.host.all())

    def read_from(self, media: Sequence[str] | None, seconds: float) -> None:
        """Fetch from these outer tiers alone for `seconds` from now; None: from all again."""
        until = 0.0 if media is None else time.monotonic() + seconds
        shut = [tier.medium for tier in self.tiers if tier.medium not in (media or ())]
        self._shut_until = dict.fromkeys(shut, until)

    def report(self) -> dict[str, Any]:
        """As `GET /v1/scopekv/tiers`, as far as an audit asks."""
        for tier in self.tiers:
            self._collect(tier)
        outer = {tier.medium: dict(tier.counters()) for tier in self.tiers}
        return {
            "tiers": {"host": {"blocks": len(self.host)}, **outer},
            "pending": len(self._storing),
        }

    def close(self) -> None:
        for tier in self.tiers:
            tier.close()
        self._keyring.close()

    def _from_host(self, block_hash: BlockHash) -> Content | None:
        found = self.host.get(block_hash)
        if found is not None:
            self.host.put(block_hash, found)  # the latest used
            self.host_hits += 1
        return found

    async def _from_tiers(self, chain: Chain, block_hash: BlockHash) -> Content | None:
        first = block_hash[0] % max(1, len(self.tiers))
        for tier in (*self.tiers[first:], *self.tiers[:first]):
            if time.monotonic() < self._shut_until.get(tier.medium, 0.0):
                continue
            asked = [(chain, bytes(block_hash), 0)]
            answers: list[Presence] = []

            def known(tier: SealedTier = tier, asked: Any = asked, answers: Any = answers) -> bool:
                answers[:] = tier.lookup(asked)
                return Presence.UNKNOWN not in answers

            await self._until(known)
            if answers == [Presence.PRESENT]:
                content = await self._load(tier, _block(chain, block_hash, Content(bytes(32))))
                if content is not None:
                    return content
        return None

    async def _load(self, tier: SealedTier, block: Block) -> Content | None:
        job_id = next(self._job_ids)
        tier.load(job_id, [block])

        def over() -> bool:
            self._collect(tier)
            return job_id in self._done

        if not await self._until(over):
            tier.abandon(job_id)
            return None
        return Content(bytes(block.view[:32])) if self._done.pop(job_id).ok else None

    def _collect(self, tier: SealedTier) -> None:
        for done in tier.finished():
            if done.job_id in self._storing:
                self._storing.discard(done.job_id)
            else:
                self._done[done.job_id] = done

    @staticmethod
    async def _until(true: Callable[[], bool]) -> bool:
        limit = time.monotonic() + WAIT_SECONDS_MAX
        while not true():
            if time.monotonic() > limit:
                return False
            await asyncio.sleep(_POLL_SECONDS)
        return True


def _block(chain: Chain, block_hash: BlockHash, content: Content) -> Block:
    slot = memoryview(bytearray(content * (BLOCK_BYTES // len(content))))
    return Block(chain, bytes(block_hash), 0, slot)


def _line(tier: str, removed: int, busy: int, error: str | None) -> dict[str, Any]:
    return {"tier": tier, "removed": removed, "busy": busy, "error": error}
