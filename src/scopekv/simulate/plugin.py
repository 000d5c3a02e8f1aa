"""The plugin of a simulated engine: the real verdict on tickets over the simulated cache."""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from scopekv import __version__
from scopekv.adapters.ed25519 import KeyFile
from scopekv.core.blocks import FORMAT_VERSION, Namespace
from scopekv.core.chains import Link, Tag, tag
from scopekv.core.enforcement import Gate, Verdict, judge
from scopekv.core.events import Medium, OuterTiers
from scopekv.core.fences import Fences
from scopekv.core.replay import UseLedger
from scopekv.core.scopes import ScopeId
from scopekv.core.tickets import Grant, audience_id
from scopekv.engines.vllm.ledger import BlockLedger
from scopekv.simulate.events import EventBus
from scopekv.simulate.prefix_cache import BlockHash, PrefixCache

PINNED_SHARE_MAX = 0.5
OK = "ok"


@dataclass(slots=True)
class SimulatedPlugin:
    """What `engines.vllm.plugin` and `engine_calls` are to vLLM. Mutable; one event loop."""

    cache: PrefixCache
    keys: KeyFile
    namespace: Namespace
    instance_group: str
    self_check: str = OK
    counts: Counter[str] = field(default_factory=Counter)
    fences: Fences = field(default_factory=Fences)
    blocks: BlockLedger = field(init=False)
    bus: EventBus = field(init=False)
    _ledger: UseLedger = field(default_factory=UseLedger)
    _instance: str = field(default_factory=lambda: secrets.token_hex(8))
    _pinned: dict[str, list[BlockHash]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.blocks = BlockLedger(self.cache.block_size, time.monotonic)
        self.bus = EventBus(time.time)
        self.bus.watch(self.cache, Medium.ENGINE)

    @property
    def works(self) -> bool:
        """Whether tags reach the hashes; a broken plugin leaves the engine as it is."""
        return self.self_check == OK

    def verdict(self, ticket: object, token_ids: Sequence[int], adapter: bytes = b"") -> Verdict:
        """Judge one sequence's ticket now, use it up, and count the reason."""
        made = judge(
            ticket,
            token_ids,
            gate=Gate(
                self.keys,
                audience_id(self.instance_group),
                self.namespace.fingerprint(),
                self.fences,
            ),
            ledger=self._ledger,
            now_ms=time.time_ns() // 1_000_000,
            monotonic_ms=time.monotonic_ns() // 1_000_000,
            nonce=secrets.token_bytes(16),
            adapter=adapter,
        )
        self.counts[made.reason] += 1
        return made

    def hashes(self, verdict: Verdict, token_ids: Sequence[int], salt: str) -> list[BlockHash]:
        """Block hashes with the verdict's tags; the salt counts where no ticket holds."""

        def extra_keys(start: int, end: int) -> tuple[tuple[str, str], ...]:
            tag = ("scopekv", verdict.tags.tag(start, end))
            return (tag,) if verdict.ticket is not None or start else (("cache_salt", salt), tag)

        made = self.cache.hashes(token_ids, extra_keys)
        if verdict.ticket is not None:
            self.blocks.note(made, 0, verdict.ticket.grants)
        return made

    def current(self, grants: Sequence[Grant]) -> bool:
        """Whether none of these was revoked."""
        return all(grant.epoch >= self.fences.get(grant.scope, 0) for grant in grants)

    def tags_of(self, hashes: Sequence[BlockHash]) -> frozenset[Tag]:
        """The tags of all scopes that these blocks were made under."""
        origins = [self.blocks.get(block_hash) for block_hash in hashes]
        return frozenset(name for origin in origins if origin for name in origin.tags)

    def fence(self, pairs: Sequence[Sequence[Any]]) -> frozenset[Tag]:
        """Let these (scope id hex, epoch) count no more; return their tags."""
        links = [Link(ScopeId(bytes.fromhex(scope)), epoch) for scope, epoch in pairs]
        self.fences.raise_above(links, time.monotonic_ns() // 1_000_000)
        return frozenset(tag(link) for link in links)

    def purge(self, tags: frozenset[Tag]) -> int:
        """Drop every block under one of these tags; return how many there were."""
        hashes = [BlockHash(name) for name in self.blocks.tagged(tags)]
        self.blocks.forget(hashes)
        return self.cache.remove(hashes)

    def forget(self) -> int:
        """Drop every block that is not pinned; return how many."""
        return self.cache.remove(self.cache.unpinned())

    def status(self) -> dict[str, Any]:
        """As `GET /v1/scopekv/status` of the real one."""
        return {
            "plugin": __version__,
            "format": FORMAT_VERSION,
            "vllm": "simulated",
            "instance": self._instance,
            "self_check": self.self_check,
            "fingerprint": self.namespace.fingerprint().hex(),
            "audience": audience_id(self.instance_group).hex(),
            "keys": [key.hex() for key in self.keys],
            "model": self.namespace.model,
            "block_size": self.namespace.block_size,
            "hash_algorithm": self.namespace.hash_algorithm,
            "hashing": {
                "algorithm": self.namespace.hash_algorithm,
                "root": self.cache.root.hex(),
                "block_size": self.cache.block_size,
            },
            "events": self.bus.endpoint,
            "without_ticket": "isolate",
            "tickets": dict(self.counts),
            "blocks": self.cache.blocks_max,
            "pinned": {label: len(blocks) for label, blocks in self._pinned.items()},
        }

    def snapshot(self, *, blocks: bool, tiers: OuterTiers | None) -> bytes:
        """As `GET /v1/scopekv/snapshot`."""
        return self.bus.snapshot(self._instance, blocks=blocks, tiers=tiers)

    def hashes_of(self, ticket: str, token_ids: list[int]) -> dict[str, Any]:
        """As `POST /v1/scopekv/hashes`."""
        verdict = self.verdict(ticket, token_ids)
        made = self.cache.hashes(
            token_ids, lambda start, end: (("scopekv", verdict.tags.tag(start, end)),)
        )
        return {"hashes": [one.hex() for one in made], "reason": str(verdict.reason)}

    def pin(self, label: str, ticket: str, token_ids: list[int]) -> dict[str, Any]:
        """Hold the cached blocks wholly under the ticket's closed grants; see `EngineSide.pin`."""
        verdict = self.verdict(ticket, token_ids)
        grants = verdict.ticket.grants if verdict.ticket is not None else ()
        ends = [grant.end for grant in grants if grant.end is not None]
        wanted = (ends[-1] if ends else 0) // self.cache.block_size
        if wanted == 0:
            return {"error": "the ticket grants no whole block", "held": 0}
        others = sum(len(held) for name, held in self._pinned.items() if name != label)
        room = max(0, int(self.cache.blocks_max * PINNED_SHARE_MAX) - others)
        blocks = self.cache.held(self.hashes(verdict, token_ids, "")[:wanted])[:room]
        self.cache.pin(blocks)
        self.unpin(label)
        self._pinned[label] = blocks
        return {"held": len(blocks), "missing": wanted - len(blocks)}

    def unpin(self, label: str) -> dict[str, Any]:
        """Give back the blocks of a label."""
        held = self._pinned.pop(label, [])
        self.cache.unpin(held)
        return {"released": len(held)}

    def restart(self) -> None:
        """A new life of the engine: new instance name, nothing held, no use remembered."""
        self._instance = secrets.token_hex(8)
        self.bus.restart()
        self._pinned.clear()
        self._ledger = UseLedger()
        self.fences = Fences()
        self.blocks = BlockLedger(self.cache.block_size, time.monotonic)
        self.counts.clear()
