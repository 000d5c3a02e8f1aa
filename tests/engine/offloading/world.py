"""vLLM's own tiering managers under ScopeKV, driven step by step without an engine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

from vllm.sampling_params import SamplingParams
from vllm.v1.kv_offload.base import ReqContext, ScheduleEndContext
from vllm.v1.request import Request, RequestStatus

from scopekv.core.chains import Link
from scopekv.core.encoding import encode_tokens
from scopekv.core.leases import Lease
from scopekv.core.scopes import Pseudonym
from scopekv.core.speeds import PrefillSpeed
from scopekv.core.tickets import Grant, Ticket, audience_id, mint, prefix_digests
from scopekv.engines.vllm.offloading.manager import ScopedOffloadingManager
from scopekv.engines.vllm.offloading.tier import SealedTierManager
from scopekv.engines.vllm.plugin import Guard
from scopekv.engines.vllm.purge import Purger
from scopekv.simulate.object_store import SimulatedObjectStore
from tests.engine.offloading.parts import (
    CHUNK_TOKENS,
    ROW_BYTES,
    SIGNER,
    Clock,
    Leases,
    account,
    scope,
    until,
)


@dataclass(slots=True)
class Asked:
    """A request as vLLM's scheduler holds it."""

    request: Any
    context: Any
    keys: list[Any]

    @property
    def hashes(self) -> list[bytes]:
        return [bytes(one) for one in self.request.block_hashes]


@dataclass(slots=True)
class World:
    """One engine's scheduler side."""

    guard: Guard
    leases: Leases
    clock: Clock
    hasher: Callable[[Any], list[bytes]]
    stores: list[SimulatedObjectStore]
    pool: Any
    manager: ScopedOffloadingManager
    _made: int = 0
    purger: Purger = field(init=False)
    core: Any = field(init=False)

    def __post_init__(self) -> None:
        self.core = SimpleNamespace(
            scheduler=SimpleNamespace(
                kv_cache_config=SimpleNamespace(kv_cache_groups=[None]),
                kv_cache_manager=SimpleNamespace(block_pool=self.pool),
            ),
            vllm_config=SimpleNamespace(kv_transfer_config=None),
            request_block_hasher=self.hasher,
        )
        self.purger = Purger(self.core, self.guard)

    @property
    def tiers(self) -> list[SealedTierManager]:
        return list(self.manager.secondary_tiers)

    @property
    def host(self) -> Any:
        return self.manager.primary_tier

    @property
    def policy(self) -> Any:
        return self.host._policy

    def lease(self, letter: str, owner: str = "", *, at_once: bool = True) -> None:
        """Let the broker have a key for a scope; `at_once`: the engine holds it already."""
        one = Lease(scope(letter), 0, letter.encode() * 32, 300, 3600, account(owner or letter))
        self.leases.by_scope[one.scope] = one
        if at_once and self.guard.keyring is not None:
            self.guard.keyring.accept([one])

    def grants(self, letter: str) -> tuple[Grant, ...]:
        """An open grant for the whole prompt."""
        return (Grant(None, scope(letter), 0, b""),)

    def ticket(
        self, letter: str, document: str = "", tokens: Sequence[int] = (), end: int = 0
    ) -> str:
        """Mint one; with a `document`, the tokens before `end` are of its scope."""
        self._made += 1
        grants = self.grants(letter)
        if document:
            (digest,) = prefix_digests(encode_tokens(tokens), [end])
            grants = (Grant(end, scope(document), 0, digest), *grants)
        namespace = self.guard.namespace
        assert namespace is not None
        now, nonce = time.time_ns() // 1_000_000, self._made.to_bytes(16, "big")
        made = Ticket(
            *(SIGNER.key_id, now, 60_000, audience_id("default"), namespace.fingerprint()),
            *(Pseudonym(b"p" * 16), nonce, 64, grants),
        )
        return mint(made, SIGNER.sign)

    def request(self, letter: str | None, tokens: Iterable[int], ticket: str | None = None) -> Any:
        """A request as the input thread makes it; without a letter it has no ticket."""
        self._made += 1
        extra = None
        if letter is not None:
            extra = {"kv_transfer_params": {"scopekv": ticket or self.ticket(letter)}}
        return Request(
            request_id=f"r{self._made}",
            prompt_token_ids=list(tokens),
            sampling_params=SamplingParams(max_tokens=64, extra_args=extra),
            pooling_params=None,
            block_hasher=self.hasher,
        )

    def document(self, letter: str, document: str, tokens: Sequence[int], end: int) -> Asked:
        """A request for a prompt that begins with a document."""
        ticket = self.ticket(letter, document, tokens, end)
        return Asked(self.request(letter, tokens, ticket), None, [])

    def cache(self, asked: Asked) -> None:
        """Put a request's blocks into the engine's own prefix cache, and let them go."""
        count = len(asked.request.block_hashes)
        blocks = self.pool.get_new_blocks(count)
        self.pool.cache_full_blocks(asked.request, blocks, 0, count, CHUNK_TOKENS, 0)
        self.pool.free_blocks(reversed(blocks))

    def cached(self, asked: Asked) -> list[bytes]:
        """Which of its blocks the engine's own cache has."""
        return [one for one in asked.hashes if self.pool.get_cached_block(one, [0]) is not None]

    def age(self, seconds: float) -> None:
        """Let every block that was made so far be so much older."""
        blocks = self.guard.blocks
        assert blocks is not None
        for key, origin in list(blocks._origins.items()):
            blocks._origins[key] = replace(origin, born=origin.born - seconds)

    def ask(self, letter: str | None, blocks: int, *, first: int = 1, more: int = 1) -> Asked:
        """Make a request of whole blocks and `more` tokens known to the scheduler."""
        request = self.request(letter, range(first, first + blocks * CHUNK_TOKENS + more))
        context = ReqContext(req_id=request.request_id)
        keys = [bytes(one) + bytes(4) for one in request.block_hashes]
        for index, key in enumerate(keys):
            context.set_offload_key_position(key, (index + 1) * CHUNK_TOKENS)
        self.manager.on_new_request(context)
        return Asked(request, context, keys)

    def copy_out(self, asked: Asked, fill: int = 7) -> int:
        """Store a request's blocks to host memory as the engine does; return how many."""
        out = self.manager.prepare_store(asked.keys, asked.context)
        if out is None:
            return 0
        if out.keys_to_store:
            view = self.host.get_kv_memoryview().cast("B")
            for chunk in out.store_spec.block_ids.tolist():
                view[chunk * ROW_BYTES : (chunk + 1) * ROW_BYTES] = bytes([fill]) * ROW_BYTES
            self.manager.complete_store(out.keys_to_store, asked.context)
        return len(out.keys_to_store)

    def look(self, asked: Asked, start: int = 0) -> tuple[int | None, list[str]]:
        """One scan of vLLM's scheduler: hits, or None where it is put off; each answer by name."""
        results: list[str] = []
        for key in asked.keys[start:]:
            results.append(self.manager.lookup(key, asked.context).name)
            if results[-1] == "MISS":
                break
        put_off = "RETRY" in results or "HIT_PENDING" in results
        return None if put_off else results.count("HIT"), results

    def step(self, preempted: Sequence[str] = ()) -> None:
        self.manager.on_schedule_end(ScheduleEndContext([], list(preempted)))

    def answer(self, asked: Asked) -> int:
        """Scan step by step until it is not put off any more; no time passes for the request."""
        hits: list[int] = []

        def again() -> bool:
            found, _ = self.look(asked)
            self.step()
            hits.extend([] if found is None else [found])
            return bool(hits)

        until(again, "an answer")
        return hits[0]

    def settle(self) -> None:
        """Let every job end."""

        def idle() -> bool:
            self.step()
            return not self.manager.has_pending_work()

        until(idle, "the end of all jobs")

    def finish(self, asked: Asked, *, finalize: bool = True) -> None:
        """End a request; without `finalize` its last blocks come with the next step."""
        asked.request.status = RequestStatus.FINISHED_STOPPED
        if finalize:
            self.manager.on_request_finished(asked.context)

    def stored(self, letter: str, blocks: int) -> None:
        """Put a prompt into every tier, and empty host memory again."""
        asked = self.ask(letter, blocks)
        assert self.copy_out(asked) == blocks
        self.settle()
        self.finish(asked)
        self.manager.reset_cache()

    def forget_presence(self) -> None:
        """Let no tier know what is there, as after a restart."""
        for one in self.tiers:
            one.sealed._parts.index.forget(list(one.sealed._parts.index.records()))

    def forget_leases(self) -> None:
        assert self.guard.keyring is not None
        self.guard.keyring._held.clear()
        self.guard.keyring._forget_derived()

    def forget_blocks(self, tier: int, hashes: Iterable[bytes], letter: str = "u") -> None:
        """Let a tier have these blocks no more."""
        parts = self.tiers[tier].sealed._parts
        chain = (Link(scope(letter), 0),)
        found = [parts.objects.address(chain, one, 0) for one in hashes]
        parts.index.forget([address.key for address in found if address is not None])

    def known_speeds(self) -> None:
        """Let fetching pay: prefill 900 tokens a second, a block in half a millisecond."""
        self.manager.planner.prefill = PrefillSpeed(tokens_per_second=900.0)
        for one in self.tiers:
            for _ in range(3):
                one.sealed._parts.meter.loaded(ROW_BYTES, 0.0005)

    def close(self) -> None:
        for store in self.stores:
            store.resume()
        self.leases.open.set()
        for one in self.tiers:
            one.sealed.close()
        if self.guard.keyring is not None:
            self.guard.keyring.close()
        assert not any(one._refused for one in self.tiers), "a tier refused a job: see the log"
