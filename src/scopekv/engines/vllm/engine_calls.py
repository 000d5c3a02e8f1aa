"""What the gateway may ask of a running engine: status, pin, purge, forget, tiers, snapshots.

Runs in the engine's own process and loop, so it sees the block pool between two steps.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from scopekv import __version__
from scopekv.core.blocks import FORMAT_VERSION
from scopekv.engines.vllm import compat
from scopekv.engines.vllm.offloading.host_memory import drop
from scopekv.engines.vllm.purge import Purger, line
from scopekv.engines.vllm.snapshot import Snapshots, hashing_of
from scopekv.errors import ConfigError

if TYPE_CHECKING:
    from scopekv.engines.vllm.plugin import Guard

LABEL_CHARS_MAX = 128


class EngineSide:
    """One engine core, seen by ScopeKV.

    Conservation: a pinned block is held by exactly one reference of ours, given back by `unpin`.
    """

    def __init__(self, core: Any, guard: Guard) -> None:
        self._core = core
        self._guard = guard
        self._instance = secrets.token_hex(8)  # new at every start: an epoch for indexes
        self._pinned: dict[str, list[Any]] = {}
        if guard.namespace is None:
            raise ConfigError("this engine's scheduler is not vLLM's own: ScopeKV cannot bind")
        self._namespace = guard.namespace
        self._purger = Purger(core, guard)
        self._snapshots = Snapshots(core, guard)

    def call(self, name: str, args: tuple[Any, ...]) -> dict[str, Any]:
        """Answer one call. Unknown names are refused by value, since an error ends the engine."""
        calls: dict[str, Callable[..., dict[str, Any]]] = {
            "status": self.status,
            "pin": self.pin,
            "unpin": self.unpin,
            "purge": self.purge,
            "expire": self.expire,
            "forget": self.forget,
            "tiers": self.tiers,
            "snapshot": self.snapshot,
            "hashes": self.hashes,
        }
        if name not in calls:
            return {"error": f"unknown call {name[:40]!r}"}
        return calls[name](*args)

    def status(self) -> dict[str, Any]:
        """Who this engine is, whether its hashing is scoped, and what it made of tickets so far."""
        config = self._core.vllm_config
        return {
            "plugin": __version__,
            "format": FORMAT_VERSION,
            "vllm": compat.vllm_version(),
            "instance": self._instance,
            "self_check": self.self_check(),
            "fingerprint": self._namespace.fingerprint().hex(),
            "audience": self._guard.audience.hex(),
            "keys": [key.hex() for key in self._guard.keys],
            "model": self._namespace.model,
            "block_size": self._namespace.block_size,
            "hash_algorithm": self._namespace.hash_algorithm,
            "hashing": hashing_of(self._namespace.hash_algorithm, self._namespace.block_size),
            "events": self._snapshots.endpoint,
            "max_model_len": config.model_config.max_model_len,
            "without_ticket": "refuse" if self._guard.settings.refuse else "isolate",
            "tickets": {str(reason): count for reason, count in self._guard.counts.items()},
            "blocks": self._pool.num_gpu_blocks,
            "pinned": {label: len(blocks) for label, blocks in self._pinned.items()},
        }

    def self_check(self) -> str:
        """Hash the same tokens for two requests without a ticket: they must not meet.

        Proves that the tags reach the hashes of this very process, whatever vLLM did at start.
        """
        if not self._core.vllm_config.cache_config.enable_prefix_caching:
            return "prefix caching is off"
        counts = self._guard.counts.copy()
        first, second = (self._hashes([1] * self._namespace.block_size, None) for _ in range(2))
        self._guard.counts = counts
        if not first or first == second:
            return "blocks of requests without a ticket can meet"
        return "ok"

    def pin(self, label: str, ticket: str, token_ids: list[int]) -> dict[str, Any]:
        """Hold the cached blocks that lie wholly under the ticket's closed grants.

        Returns how many are held now and how many were not in the cache. Pinning again replaces;
        pins never take more than `pinned_share_max` of the engine's blocks.
        """
        if not 0 < len(label) <= LABEL_CHARS_MAX:
            return {"error": f"a label has 1 to {LABEL_CHARS_MAX} characters"}
        groups = self._core.scheduler.kv_cache_config.kv_cache_groups
        if len(groups) != 1:
            return {"error": "pinning needs a model with one KV cache group", "held": 0}
        blocks, wanted = self._granted_blocks(ticket, token_ids)
        if wanted == 0:
            return {"error": "the ticket grants no whole block", "held": 0}
        others = sum(len(held) for name, held in self._pinned.items() if name != label)
        room = int(self._pool.num_gpu_blocks * self._guard.settings.pinned_share_max) - others
        blocks = blocks[: max(0, room)]
        self._pool.touch(blocks)
        self.unpin(label)
        self._pinned[label] = blocks
        return {"held": len(blocks), "missing": wanted - len(blocks)}

    def unpin(self, label: str) -> dict[str, Any]:
        """Give back the blocks of a label. Unknown labels hold nothing."""
        held = self._pinned.pop(label, [])
        self._pool.free_blocks(reversed(held))
        return {"released": len(held)}

    def purge(self, pairs: list[list[Any]]) -> dict[str, Any]:
        """Make every tier here forget these (scope, epoch) pairs; see `Purger.purge`.

        Pins that held such blocks are given back.
        """
        before = self._snapshots.host_keys()
        answer = self._purger.purge(pairs)
        self._snapshots.announce_host_losses(before)
        self._unpin_emptied()
        return answer

    def expire(self) -> dict[str, Any]:
        """Drop what was kept long enough; `unpinned` are the labels to be pinned anew."""
        before = self._snapshots.host_keys()
        answer = self._purger.expire()
        self._snapshots.announce_host_losses(before)
        return answer | {"unpinned": self._unpin_emptied()}

    def forget(self, media: list[str], read: list[str] | None, seconds: float) -> dict[str, Any]:
        """Drop the copies in these media (`engine`, `host`), for an audit of one tier alone.

        Pinned blocks stay in the engine. `read`: the outer tiers that blocks are fetched from for
        `seconds` from now, whatever that costs; None: all of them again, where it pays. Outer tiers
        lose nothing. Answers as `purge`.
        """
        before = self._snapshots.host_keys()
        lines = []
        if "engine" in media:
            pinned = {block.block_id for held in self._pinned.values() for block in held}
            lines.append(line("engine", *self._purger.forget_engine(pinned)))
        tiers = self._guard.tiers
        if tiers is not None:
            if "host" in media:
                lines.append(line("host", *drop(tiers.primary_tier, lambda _: True)))
            shut_until = 0.0 if read is None else time.monotonic() + seconds
            tiers.planner.eager_until = shut_until if read else 0.0
            for tier in tiers.secondary_tiers:
                tier.shut_until = 0.0 if tier.medium_name in (read or ()) else shut_until
        self._snapshots.announce_host_losses(before)
        return {"lines": lines}

    def _unpin_emptied(self) -> list[str]:
        """Give back pins whose blocks left the cache: they hold memory and serve nobody."""
        emptied = [
            label
            for label, blocks in self._pinned.items()
            if any(block.block_hash is None for block in blocks)
        ]
        for label in emptied:
            self.unpin(label)
        return emptied

    def snapshot(self, blocks: bool) -> dict[str, Any]:
        """What is held now, packed, with the number of events it is exact at (`Snapshots`)."""
        return {"packed": self._snapshots.take(self._instance, blocks=blocks)}

    def hashes(self, ticket: str, token_ids: list[int]) -> dict[str, Any]:
        """The block hashes of a prompt under a ticket, in hex: by them a gateway proves its own.

        Nothing is looked up. Cost: that of one request's hashing.
        """
        request = self._request(token_ids, ticket)
        reason = self._guard.verdict(request).reason
        return {"hashes": [bytes(one).hex() for one in request.block_hashes], "reason": str(reason)}

    def tiers(self) -> dict[str, Any]:
        """The tiers' counters, speeds and the decisions on fetching so far."""
        tiers = self._guard.tiers
        return tiers.report() if tiers is not None else {"tiers": {}, "fetch": {}, "pending": 0}

    def _granted_blocks(self, ticket: str, token_ids: list[int]) -> tuple[list[Any], int]:
        """The cached blocks of the granted prefix, up to the first that is missing."""
        request = self._request(token_ids, ticket)
        granted = self._guard.verdict(request).ticket
        ends = [grant.end for grant in granted.grants if grant.end is not None] if granted else []
        wanted = (ends[-1] if ends else 0) // self._namespace.block_size
        found: list[Any] = []
        for block_hash in request.block_hashes[:wanted]:
            cached = self._pool.get_cached_block(block_hash, [0])
            if cached is None:
                break
            found.extend(cached)
        return found, wanted

    def _hashes(self, token_ids: list[int], ticket: str | None) -> list[bytes]:
        return list(self._request(token_ids, ticket).block_hashes)

    def _request(self, token_ids: list[int], ticket: str | None) -> Any:
        from vllm.sampling_params import SamplingParams
        from vllm.v1.request import Request

        extra = {"kv_transfer_params": {"scopekv": ticket}} if ticket is not None else None
        return Request(
            request_id=f"scopekv-{secrets.token_hex(4)}",
            prompt_token_ids=token_ids,
            sampling_params=SamplingParams(max_tokens=1, extra_args=extra),
            pooling_params=None,
            block_hasher=self._core.request_block_hasher,
        )

    @property
    def _pool(self) -> Any:
        return self._core.scheduler.kv_cache_manager.block_pool
