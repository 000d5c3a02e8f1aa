"""What the engine holds now, exact at a number of its event sequence: the resync path for indexes.

Runs between two steps. Events that wait for the next step are published first, so that after
every batch below the number, and before every other, an index holds what the snapshot says.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from scopekv.core.block_hashes import SHORT_BYTES, unpack
from scopekv.core.events import Medium, OuterTiers, Snapshot, encode_snapshot

if TYPE_CHECKING:
    from scopekv.engines.vllm.plugin import Guard

DRAIN_SECONDS_MAX = 1.0
_GROUP_BYTES = 4  # a key is the block hash and the number of the KV cache group


class Snapshots:
    """Snapshots of one engine core. `sequence`: how many batches it has published."""

    def __init__(self, core: Any, guard: Guard) -> None:
        self._core, self._guard = core, guard
        self._publisher: Any = getattr(core.scheduler, "kv_event_publisher", None)
        self.endpoint = _endpoint(self._publisher)
        self._published = 0
        if self.endpoint is not None:
            self._count()

    def take(self, instance: str, *, blocks: bool) -> bytes:
        """The wire form of `core.events.Snapshot`. Cost: 0.3 ms for 1,000 blocks, if asked for."""
        sequence = None
        if self.endpoint is not None:
            self.flush()
            sequence = self._published
        held = self._held() if blocks else None
        return encode_snapshot(Snapshot(instance, sequence, time.time(), held, self._tiers()))

    def flush(self) -> None:
        """Publish the events that wait for the next step; an idle engine would keep them."""
        if self.endpoint is None:
            return
        from vllm.distributed.kv_events import KVEventBatch

        scheduler = self._core.scheduler
        events = list(scheduler.kv_cache_manager.take_events() or ())
        if scheduler.connector is not None:
            events.extend(scheduler.connector.take_events() or ())
        if events:
            self._publisher.publish(KVEventBatch(ts=time.time(), events=events))

    def host_keys(self) -> set[bytes]:
        """The keys in host memory that are announced, where events are published at all."""
        tiers = self._guard.tiers
        if tiers is None or self.endpoint is None:
            return set()
        policy = tiers.primary_tier._policy
        return {bytes(key) for key in policy.held() if policy.get(key).is_ready}

    def announce_host_losses(self, before: set[bytes]) -> None:
        """Publish what left host memory since `before`: a purge tells vLLM's events nothing."""
        gone = before - self.host_keys()
        if not gone:
            return
        from vllm.v1.kv_offload.base import OffloadingEvent

        host = self._guard.tiers.primary_tier  # type: ignore[union-attr]
        host.events.append(OffloadingEvent(keys=list(gone), medium=host.medium, removed=True))

    def _held(self) -> dict[Medium, Sequence[int]]:
        """As published: what a tier's worker changed since is told with the next batch."""
        held: dict[Medium, Sequence[int]] = {Medium.ENGINE: unpack(self._engine())}
        if self._guard.tiers is not None:
            held[Medium.HOST] = unpack(self._host())
            for tier in self._guard.tiers.secondary_tiers:
                held[tier.sealed.place().medium] = tier.sealed.residents.told()
        return held

    def _tiers(self) -> OuterTiers | None:
        tiers = self._guard.tiers
        if tiers is None:
            return None
        nearest = tuple(tier.sealed.place() for tier in tiers.secondary_tiers)
        return OuterTiers(tiers.planner.chunk_tokens, tiers.planner.chunk_bytes, nearest)

    def _engine(self) -> bytes:
        pool = self._core.scheduler.kv_cache_manager.block_pool
        parts: list[bytes] = []
        for key, held in pool.cached_block_hash_to_block._cache.items():
            block_hash = key[-_GROUP_BYTES - SHORT_BYTES : -_GROUP_BYTES]
            parts.append(block_hash if type(held) is not dict else block_hash * len(held))
        return b"".join(parts)

    def _host(self) -> bytes:
        policy = self._guard.tiers.primary_tier._policy  # type: ignore[union-attr]
        return b"".join(_short(key for key in policy.held() if policy.get(key).is_ready))

    def _count(self) -> None:
        """Count what is published from now on, from the number that the next batch will have.

        The publisher's thread gives the numbers, one to each batch in the order they were handed
        over, so once its queue is empty the count of batches handed over is the number.
        """
        publisher, until = self._publisher, time.monotonic() + DRAIN_SECONDS_MAX
        while publisher._event_queue.unfinished_tasks and time.monotonic() < until:
            time.sleep(0.001)
        found = re.fullmatch(r"count\((\d+)\)", repr(publisher._seq_gen))
        self._published = (int(found[1]) if found else 0) + publisher._event_queue.qsize()
        original = publisher.publish

        def publish(events: Any) -> None:
            original(events)
            self._published += 1

        publisher.publish = publish


def _short(keys: Iterable[Any]) -> Iterable[bytes]:
    return (bytes(key)[-_GROUP_BYTES - SHORT_BYTES : -_GROUP_BYTES] for key in keys)


def _endpoint(publisher: Any) -> str | None:
    """Where the engine publishes its events; None where it does not."""
    config = getattr(publisher, "get_publisher_config", lambda: None)()
    return str(config.endpoint) if config is not None else None


def hashing_of(algorithm: str, block_size: int) -> dict[str, Any]:
    """How this process hashes blocks, for whoever makes the same hashes elsewhere.

    `root`: the parent of every first block, in hex; a digest of the seed, not the seed.
    """
    from vllm.v1.core import kv_cache_utils

    root = getattr(kv_cache_utils, "NONE_HASH", b"")
    return {"algorithm": algorithm, "root": bytes(root).hex(), "block_size": block_size}
