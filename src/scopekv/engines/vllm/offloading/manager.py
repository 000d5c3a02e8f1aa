"""The scheduler's side of tiered offload: whose block is where, and what is worth fetching.

Read path of a block that the engine lacks: host memory, else the tier that the request's plan
names, else recompute. Write path: vLLM stores to host memory and cascades to every tier.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from vllm.platforms import current_platform
from vllm.v1.kv_offload.base import LookupResult
from vllm.v1.kv_offload.tiering.manager import TieringOffloadingManager

from scopekv.core.chains import Chain, Tag
from scopekv.core.fetching import stalled
from scopekv.engines.vllm.offloading.host_memory import drop
from scopekv.engines.vllm.offloading.metrics import TierMetrics
from scopekv.engines.vllm.offloading.planning import Planner
from scopekv.engines.vllm.offloading.requests import TieredRequest, chunk_keys

if TYPE_CHECKING:
    from scopekv.engines.vllm.plugin import Guard

OTHERS_SECONDS = 0.02  # what a copy from the engine may take, whatever prefill costs
# Prefill tokens a second, on a CPU or not, until the first step tells.
FIRST_SPEED = {True: 200.0, False: 5000.0}


class ScopedOffloadingManager(TieringOffloadingManager):
    """vLLM's manager with scopes, plans, purges and retention. On its scheduler's thread alone."""

    def __init__(
        self,
        primary_tier: Any,
        secondary_tiers: list[Any],
        *,
        guard: Guard,
        hashes_per_chunk: int,
        tokens_per_chunk: int,
        groups: int,
    ) -> None:
        super().__init__(primary_tier, secondary_tiers)
        self._guard = guard
        self._hashes_per_chunk = hashes_per_chunk
        self._groups = groups
        self.requests: dict[str, TieredRequest] = {}
        self._metrics_of_tiers = TierMetrics()
        self._step = 0
        chunk_bytes = int(primary_tier.get_kv_memoryview().strides[0])
        self.planner = Planner(
            tokens_per_chunk, chunk_bytes, FIRST_SPEED[current_platform.is_cpu()]
        )
        for tier in secondary_tiers:
            tier.bind(self)
        guard.tiers = self

    @property
    def one_group(self) -> bool:
        """Whether a block is one object; a hybrid model's blocks come in sets: no outer tier."""
        return self._groups == 1

    # --- requests -------------------------------------------------------------------------------

    def on_new_request(self, req_context: Any, *, exclude_tier_idx: int | None = None) -> Any:
        request = self._guard.requests.get(req_context.req_id)
        ticket = self._guard.verdict(request).ticket if request is not None else None
        grants = ticket.grants if ticket is not None else ()
        self.requests[req_context.req_id] = TieredRequest(request, grants)
        return super().on_new_request(req_context, exclude_tier_idx=exclude_tier_idx)

    def _maybe_finalize_request(self, req_id: str, exclude_tier_idx: int | None = None) -> None:
        super()._maybe_finalize_request(req_id, exclude_tier_idx)
        if req_id not in self._req_state:
            self.requests.pop(req_id, None)

    def chain_of(self, key: bytes, req_context: Any) -> Chain | None:
        """The scopes of a block of this request; None where no tier may keep or serve it."""
        asked = self.requests.get(req_context.req_id)
        end = req_context.get_offload_key_position(key)
        if asked is None or not asked.grants or end is None:
            return None
        return asked.chain(end)

    def prepare_store(self, keys: Collection[Any], req_context: Any) -> Any:
        """vLLM's, but for requests without a ticket: nobody could ever read their blocks again."""
        asked = self.requests.get(req_context.req_id)
        wanted = keys if asked is not None and asked.grants else ()
        self.primary_tier._policy.serve(req_context)
        return super().prepare_store(wanted, req_context)

    def reset_cache(self) -> None:
        super().reset_cache()
        for req_id in self.requests.keys() - self._req_state.keys():
            del self.requests[req_id]
        for asked in self.requests.values():
            asked.start_over()

    def place_of(self, key: bytes, req_context: Any) -> tuple[Chain | None, bytes | None, int]:
        """The chain of a request's block, the key of the block before it, and its depth. O(1)."""
        asked = self.requests.get(req_context.req_id)
        end = req_context.get_offload_key_position(key)
        if asked is None or end is None:
            return None, None, 0
        depth = max(0, end // self.planner.chunk_tokens - 1)
        hashes = asked.request.block_hashes if asked.request is not None else ()
        before = depth * self._hashes_per_chunk - 1
        parent = bytes(hashes[before]) + key[-4:] if 0 <= before < len(hashes) else None
        return self.chain_of(key, req_context), parent if parent != key else None, depth

    # --- lookups --------------------------------------------------------------------------------

    def lookup(self, key: Any, req_context: Any, *, exclude_tier_idx: int | None = None) -> Any:
        """vLLM's lookup, with the request's plan between host memory and the tiers."""
        self._maybe_process_finished_jobs()
        asked = self.requests.get(req_context.req_id)
        end = req_context.get_offload_key_position(key)
        if asked is not None and self._is_last(asked, end):
            return LookupResult.MISS
        new_scan = asked is not None and asked.looks_at(end, self._step)
        found = self.primary_tier.lookup(key, req_context)
        if found is LookupResult.HIT:
            return found
        if found is LookupResult.HIT_PENDING:
            return LookupResult.MISS if self._tired(asked, bytes(key)) else found
        if asked is None or not asked.grants or asked.given_up or not self.secondary_tiers:
            return LookupResult.MISS
        if asked.deferred and not new_scan:
            return LookupResult.MISS  # ends a scan that is put off; a plan begins at a start
        asked.broke(bytes(key), len(self.secondary_tiers))
        asked.deferred = asked.plan is None and not self._planned(asked, key)
        if asked.deferred:
            return LookupResult.RETRY
        source = asked.sources.pop(bytes(key), None)
        if source is None or source == exclude_tier_idx:
            return LookupResult.MISS
        self.primary_tier._policy.serve(req_context)
        if not self._initiate_promotion(source, key, req_context):
            return LookupResult.MISS
        asked.promised.add(bytes(key))
        asked.fetched[self.secondary_tiers[source].medium_name] += 1
        return LookupResult.HIT_PENDING

    @staticmethod
    def _is_last(asked: TieredRequest, end: int | None) -> bool:
        """Whether a block ends the prompt: then the engine computes it, whatever is cached.

        Its own cache is read no further either, so the last step has one shape wherever the
        blocks before came from (L7).
        """
        return asked.request is not None and end is not None and end >= asked.request.num_tokens

    def _tired(self, asked: TieredRequest | None, key: bytes) -> bool:
        """Whether a request waits no longer for a block that is on its way.

        For its own fetch a plan says how long; for another's, which nobody may be watching any
        more, its patience with tiers.
        """
        if asked is None or asked.given_up or asked.request is None:
            return asked is not None and asked.given_up
        if key in asked.promised:
            return False
        patience = self.planner.patience_seconds(0, asked.request.num_prompt_tokens)[1]
        return asked.waited("others") > max(OTHERS_SECONDS, patience)

    def _planned(self, asked: TieredRequest, key: Any) -> bool:
        """Decide what to fetch from `key` on. False: a tier does not know yet, ask again.

        A model with several KV cache groups gets nothing from outer tiers: its blocks come in
        sets, and a plan here counts leading blocks of one.
        """
        request = asked.request
        keys = chunk_keys(request.block_hashes, self._hashes_per_chunk, 0)
        wanted, size = bytes(key), self.planner.chunk_tokens
        first = keys.index(wanted) if self.one_group and wanted in keys else len(keys)
        rest = keys[first:]
        chains = [asked.chain((first + i + 1) * size) for i in range(len(rest))]
        patience = self.planner.patience_seconds(first * size, request.num_prompt_tokens)
        if rest and self._keys_are_coming(chains[-1]) and asked.waited("keys") < patience[0]:
            return False
        runs = self._runs(rest, chains, patient=asked.waited("tiers") < patience[1])
        if runs is None:
            return False
        asked.plan = self.planner.plan(
            request.num_prompt_tokens,
            first * size,
            runs,
            [tier.sealed for tier in self.secondary_tiers],
            self._guard.queue_tokens(request),
        )
        asked.waited("fetch")
        at = 0
        for tier_idx, count in runs:
            for one in rest[at : min(at + count, asked.plan.blocks)]:
                asked.sources[one] = tier_idx
            at += count
        return True

    def _keys_are_coming(self, chain: Chain) -> bool:
        """Whether a lease that would open these blocks is on its way."""
        keyring = self._guard.keyring
        return keyring is not None and keyring.chain(chain) is None and keyring.pending(chain)

    def _runs(
        self, keys: Sequence[bytes], chains: Sequence[Chain], *, patient: bool
    ) -> list[tuple[int, int]] | None:
        """Leading blocks there are, as runs (tier, blocks); None: wait for a tier's answer.

        Each block comes from the first tier, in the configured order, that has it. Without
        patience a tier that does not know has nothing.
        """
        runs: list[tuple[int, int]] = []
        if not keys:
            return runs
        answers = [tier.presence(keys, chains) for tier in self.secondary_tiers]
        for places in zip(*answers, strict=True):
            if True in places:
                tier_idx = places.index(True)
            elif None in places and patient:
                return None
            else:
                break
            if runs and runs[-1][0] == tier_idx:
                runs[-1] = (tier_idx, runs[-1][1] + 1)
            else:
                runs.append((tier_idx, 1))
        return runs

    def on_schedule_end(self, context: Any) -> None:
        super().on_schedule_end(context)
        for req_id in context.preempted_req_ids:
            if (asked := self.requests.get(req_id)) is not None:
                asked.start_over()
        self._give_up_stalled()
        self._step += 1

    def _give_up_stalled(self) -> None:
        """Recompute what a stalled fetch holds up (L9): its blocks are a miss from now on."""
        fetches: dict[str, list[tuple[Any, Any]]] = {}
        for metadata in self._jobs.values():
            job = metadata.transfer_job
            if job.is_promotion:
                tier = self.secondary_tiers[metadata.tier_idx]
                fetches.setdefault(job.req_context.req_id, []).append((tier, job))
        for req_id, jobs in fetches.items():
            asked = self.requests.get(req_id)
            if asked is None or asked.plan is None or asked.given_up:
                continue
            under_way = sum(tier.progress(job) for tier, job in jobs)
            begun = sum(len(job.keys) for _, job in jobs)
            done = max(0, len(asked.promised) - begun + under_way)
            if stalled(asked.waited("fetch"), done, asked.plan):
                for tier, job in jobs:
                    tier.abandon(job)
                asked.given_up = True
                self.planner.counts["given_up"] += 1

    def get_stats(self) -> Any:
        ours = self._metrics_of_tiers.take(self)
        theirs = super().get_stats()
        return ours if theirs is None else theirs.aggregate(ours)

    def report(self) -> dict[str, Any]:
        """Counters and speeds of every tier, the decisions so far, and how many jobs are open."""
        host = self.primary_tier
        tiers: dict[str, Any] = {
            "host": {
                "blocks": len(host._policy.held()),
                "blocks_max": host._num_chunks,
                "block_bytes": int(host.get_kv_memoryview().strides[0]),
            }
        }
        for tier in self.secondary_tiers:
            tiers[tier.medium_name] = dict(tier.sealed.counters()) | {"speed": tier.speed_report()}
        return {"tiers": tiers, "fetch": self.planner.report(), "pending": len(self._jobs)}

    # --- purge and retention --------------------------------------------------------------------

    def purge_host(self, tags: frozenset[Tag]) -> tuple[int, int]:
        """Drop the host's blocks that these tags cover; return (removed, busy)."""
        origin_of = self._guard.origin

        def covered(key: bytes) -> bool:
            origin = origin_of(key[:-4])
            return origin is not None and not origin.tags.isdisjoint(tags)

        return drop(self.primary_tier, covered)

    def expire_host(self, expired: Collection[bytes]) -> tuple[int, int]:
        """Drop the host's blocks with these hashes: their time is over."""
        return drop(self.primary_tier, lambda key: key[:-4] in expired)

    def host_holds(self, block_hash: bytes) -> bool:
        """Whether host memory has a block of this hash, of whatever group."""
        return any(
            self.primary_tier._policy.get(block_hash + group.to_bytes(4, "big")) is not None
            for group in range(self._groups)
        )
