"""A sealed tier as vLLM's tiering sees it: its jobs, its keys, its place in host memory."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vllm.distributed.kv_events import BlockRemoved, BlockStored, KVCacheEvent
from vllm.v1.kv_offload.base import (
    LookupResult,
    Medium,
    OffloadPolicy,
    RequestOffloadingContext,
)
from vllm.v1.kv_offload.tiering.base import JobResult, SecondaryTierManager
from vllm.v1.metrics.cache_hit_source import CacheHitSource

from scopekv.core.chains import Chain
from scopekv.engines.tiers import with_credentials
from scopekv.engines.vllm.plugin import installed_guard
from scopekv.errors import ConfigError, Misuse
from scopekv.store.opening import open_tier
from scopekv.store.tier import Block, Presence, SealedTier

if TYPE_CHECKING:
    from scopekv.engines.vllm.offloading.manager import ScopedOffloadingManager

log = logging.getLogger("vllm.scopekv")
_PRESENT = {Presence.PRESENT: True, Presence.ABSENT: False, Presence.UNKNOWN: None}


class SealedTierManager(SecondaryTierManager):
    """Moves blocks between host memory and one sealed tier. Never blocks the scheduler.

    `url` and `capacity_bytes` as in `scopekv up --tier`; `{instance}` in a path was replaced there.
    """

    def __init__(
        self,
        offloading_spec: Any,
        primary_kv_view: memoryview,
        tier_type: str,
        url: str,
        capacity_bytes: int,
        backpressure_detector: Any = None,
        state_dir: str = "",
    ) -> None:
        super().__init__(offloading_spec, primary_kv_view, tier_type, backpressure_detector)
        guard = installed_guard()
        if guard is None or guard.keyring is None or guard.namespace is None:
            raise ConfigError(
                "a sealed tier needs the key broker: set SCOPEKV_BROKER_URL and "
                "SCOPEKV_BROKER_SECRET beside SCOPEKV_TICKET_KEYS"
            )
        self.sealed: SealedTier = open_tier(
            with_credentials(url, os.environ),
            capacity_bytes=capacity_bytes,
            keyring=guard.keyring,
            namespace=guard.namespace.fingerprint(),
            block_bytes=self.block_size_bytes,
            state_dir=Path(state_dir) if state_dir else None,
        )
        self.medium_name = self.sealed.medium
        self.tier_type = self.medium_name  # the label of vLLM's metrics
        if self.medium_name == "directory":
            self.cache_hit_source = CacheHitSource.DISK
            self.medium = Medium.STORAGE
        self._flat = primary_kv_view.cast("B")
        self._jobs: dict[int, Any] = {}
        self._ready: list[JobResult] = []
        self.shut_until = 0.0  # by this process's monotonic clock: nothing is fetched before
        self._refused = 0  # jobs that were an error of ours; the first is logged
        self._manager: ScopedOffloadingManager | None = None

    def bind(self, manager: ScopedOffloadingManager) -> None:
        """Set the manager that knows the requests' scopes."""
        self._manager = manager

    # --- read path ------------------------------------------------------------------------------

    def presence(self, keys: Sequence[bytes], chains: Sequence[Chain]) -> list[bool | None]:
        """Whether each block is here; None: not known yet. While it is shut, none is."""
        if time.monotonic() < self.shut_until:
            return [False] * len(keys)
        asked = [
            (chain, key[:-4], int.from_bytes(key[-4:], "big"))
            for key, chain in zip(keys, chains, strict=True)
        ]
        return [_PRESENT[answer] for answer in self.sealed.lookup(asked)]

    def lookup(self, key: Any, req_context: Any) -> LookupResult:
        """vLLM's own question; our manager asks `presence` of many at once."""
        chain = self._manager.chain_of(key, req_context) if self._manager else None
        if chain is None:
            return LookupResult.MISS
        answer = self.presence([bytes(key)], [chain])[0]
        if answer is None:
            return LookupResult.RETRY
        return LookupResult.HIT if answer else LookupResult.MISS

    def submit_load(self, job_metadata: Any) -> None:
        if not self._submit(job_metadata, self.sealed.load):  # nothing was read
            self._finish(JobResult(job_metadata.job_id, success=False))

    def progress(self, job: Any) -> int:
        """How many blocks of a load are there."""
        done = self.sealed.progress(job.job_id)
        return len(job.keys) if done is None else done

    def speed_report(self) -> dict[str, Any]:
        """What fetching costs now, as measured."""
        speed = self.sealed.speed()
        return {
            "latency_seconds": speed.latency_seconds,
            "bytes_per_second": speed.bytes_per_second,
            "samples": speed.samples,
            "spread": speed.spread,
        }

    def abandon(self, job: Any) -> None:
        """Nobody waits for this load any more; from now on it writes no byte."""
        self.sealed.abandon(job.job_id)

    # --- write path -----------------------------------------------------------------------------

    def submit_store(self, job_metadata: Any) -> None:
        if not self._submit(job_metadata, self.sealed.store):
            self._finish(JobResult(job_metadata.job_id, success=True))

    def _submit(self, job: Any, move: Callable[[int, list[Block]], None]) -> bool:
        """Hand a job over; False where its blocks cannot be moved, as when its request is gone.

        Raises nothing: on the scheduler's thread an error ends the engine.
        """
        self._jobs[job.job_id] = job
        try:
            blocks = self._blocks(job)
            if blocks is not None:
                move(job.job_id, blocks)
        except Misuse:
            if not self._refused:
                log.exception("ScopeKV: a tier refused a job, so its blocks are made again.")
            self._refused += 1
            return False
        return blocks is not None

    def _blocks(self, job: Any) -> list[Block] | None:
        """The job's blocks with their scopes and places; None unless all are known."""
        manager = self._manager
        if manager is None or not manager.one_group:
            return None
        row, planner = self.block_size_bytes, manager.planner
        position = job.req_context.get_offload_key_position
        ends = {position(key): bytes(key[:-4]) for key in job.keys}
        blocks = []
        for key, chunk in zip(job.keys, job.chunk_ids.tolist(), strict=True):
            chain = manager.chain_of(key, job.req_context)
            if chain is None:
                return None
            end = position(key)
            depth = max(0, end // planner.chunk_tokens - 1)
            blocks.append(
                Block(
                    chain,
                    bytes(key[:-4]),
                    int.from_bytes(key[-4:], "big"),
                    self._flat[chunk * row : (chunk + 1) * row],
                    parent=ends.get(end - planner.chunk_tokens),
                    depth=depth,
                    cost=planner.chunk_cost(depth),
                )
            )
        return blocks

    # --- jobs -----------------------------------------------------------------------------------

    def get_finished_jobs(self) -> Iterable[JobResult]:
        for done in self.sealed.finished():
            job = self._jobs.get(done.job_id)
            if job is None:  # refused half-way: told already
                continue
            keys = list(job.keys)
            whole = len(done.ok) == len(keys)
            self._finish(
                JobResult(
                    done.job_id,
                    success=whole,
                    successful_keys=None if whole else [keys[index] for index in done.ok],
                    transfer_time=done.seconds,
                    transfer_bytes=done.size_bytes,
                )
            )
        ready, self._ready = self._ready, []
        return ready

    def _finish(self, result: JobResult) -> None:
        self._jobs.pop(result.job_id, None)
        self._ready.append(result)

    def drain_jobs(self) -> None:
        """End what is under way now: loads are abandoned, queued stores dropped.

        After it no byte of host memory is written or read: an abandoned job ends at once, and a
        store that is being sealed looks at its job before it puts anything.
        """
        for job in list(self._jobs.values()):
            self.sealed.abandon(job.job_id)
        self._ready = list(self.get_finished_jobs())

    def kv_events(self) -> Iterator[KVCacheEvent]:
        """What came to the tier and left it since the last call: short hashes, no token ids.

        vLLM would translate events of its own kind, but only for blocks of requests it remembers.
        """
        came, left = self.sealed.residents.changes()
        medium, size = (
            self.sealed.medium,
            self._manager.planner.chunk_tokens if self._manager else 0,
        )
        if came:
            yield BlockStored(came, None, [], size, None, medium, None, group_idx=0)
        if left:
            yield BlockRemoved(left, medium, group_idx=0)

    # --- the rest of vLLM's contract ------------------------------------------------------------

    def touch(self, keys: Collection[Any], req_context: Any) -> None:
        if self._manager is not None:
            named = [(self._manager.chain_of(key, req_context), bytes(key)) for key in keys]
            self.sealed.touch(
                [
                    (chain, key[:-4], int.from_bytes(key[-4:], "big"))
                    for chain, key in named
                    if chain is not None
                ]
            )

    def on_new_request(self, req_context: Any) -> RequestOffloadingContext:  # noqa: ARG002
        # Whole requests, hits included: eviction goes by a block's last use.
        return RequestOffloadingContext(policy=OffloadPolicy.REQUEST_LEVEL)

    def shutdown(self) -> None:
        self.drain_jobs()
        self.sealed.close()
        self._flat.release()
