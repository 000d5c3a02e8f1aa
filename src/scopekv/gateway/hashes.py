"""The chains of requests as each engine hashes them, and the proof that ours are the engine's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scopekv.core.block_hashes import (
    ALGORITHM,
    DEFAULT_SEED,
    ChainHasher,
    EngineHash,
    root_of,
    short,
)
from scopekv.core.blocks import BlockTagger, Fingerprint
from scopekv.core.reasons import TicketReason
from scopekv.core.scopes import Principal, Scope, ScopeKind
from scopekv.core.segments import Segment
from scopekv.errors import Misuse, NotFound, Unavailable
from scopekv.gateway.instances import Instance
from scopekv.gateway.permits import Issuer
from scopekv.gateway.routing import Asked
from scopekv.gateway.tokens import Tokens

CHAINS_MAX = 16
PROOF_SECONDS_MAX = 15.0
_PROVER = Principal("scopekv", "prover", "scopekv", "prover")
_PROVED = (Scope(ScopeKind.DOCUMENT, ("proof",)), Scope(ScopeKind.USER, ("scopekv", "prover")))


@dataclass(frozen=True, slots=True)
class Hashing:
    """How an instance makes block hashes. Instances with equal ones have equal chains."""

    fingerprint: Fingerprint
    root: EngineHash
    block_size: int


_Key = tuple[Hashing, bytes, tuple[Segment, ...], tuple[int, ...]]


class PromptHashes:
    """Makes chains of short hashes, once for each request and way of hashing."""

    def __init__(self, issuer: Issuer) -> None:
        self._issuer = issuer
        self._hasher = ChainHasher()
        self._last: dict[_Key, list[int]] = {}

    def chain(self, asked: Asked, hashing: Hashing) -> list[int]:
        """Short hashes of the blocks that an engine may read for this prompt; none without tokens.

        The block that ends the prompt is left out: an engine computes it in any case. Cost: 1 ms
        for 10,000 tokens; the last few prompts are remembered, for a retry.
        """
        tokens = asked.tokens
        if tokens is None:
            return []
        key = (hashing, tokens.packed, asked.segments, asked.epochs)
        found = self._last.get(key)
        if found is None:
            full = self._full(tokens, asked.segments, asked.epochs, hashing, len(tokens) - 1)
            found = [short(one) for one in full]
            if len(self._last) >= CHAINS_MAX:
                self._last.clear()
            self._last[key] = found
        return found

    async def difference(self, instance: Instance) -> tuple[Hashing | None, str]:
        """How an instance hashes, None if not as we do; and what is different there, or nothing.

        Asks the engine to hash a prompt of two scopes under a ticket, and compares. A template
        that differs concerns chats alone, whose tokens nobody has here. Raises `Unavailable`.
        """
        told = instance.status.get("hashing")
        if instance.fingerprint is None or not isinstance(told, dict):
            return None, "the plugin does not say how the engine hashes"
        if told.get("algorithm") != ALGORITHM:
            return None, (
                f"hash algorithm: the engine has {told.get('algorithm')}, which nobody else can "
                f"compute. Start it with --prefix-caching-hash-algo {ALGORITHM}."
            )
        if instance.texts is None:
            return None, "template: the engine renders prompts otherwise than this gateway"
        size = int(told["block_size"])
        if size != instance.block_size or size < 1:
            return None, f"block size: hashes cover {size} tokens, blocks {instance.block_size}"
        hashing = Hashing(instance.fingerprint, EngineHash(bytes.fromhex(str(told["root"]))), size)
        proven, problem = await self._proof(instance, hashing)
        if proven is not None and instance.texts.here.template is None:
            problem = "template: chats have other tokens there, so they are not located"
        return proven, problem

    async def _proof(self, instance: Instance, hashing: Hashing) -> tuple[Hashing | None, str]:
        size = hashing.block_size
        tokens = Tokens.of([(7 * i) % 300 for i in range(3 * size)])
        segments = (
            Segment(0, size + 1, _PROVED[0]),
            Segment(size + 1, None, _PROVED[1]),
        )
        ticket = self._issuer.ticket(
            _PROVER, segments, (0, 0), tokens, namespace=hashing.fingerprint, uses=1
        )
        body = {"ticket": ticket, "token_ids": tokens.ids()}
        try:
            answer = await instance.ask(
                "POST", "/v1/scopekv/hashes", body, seconds=PROOF_SECONDS_MAX
            )
        except (NotFound, Misuse) as error:
            return None, f"the plugin there is too old to prove it ({error})"
        if not isinstance(answer, dict) or not isinstance(answer.get("hashes"), list):
            raise Unavailable("the engine's answer on hashes is not what the plugin sends")
        if answer.get("reason") != TicketReason.OK:
            return None, f"the engine did not take the proof's ticket: {answer.get('reason')}"
        ours = [one.hex() for one in self._full(tokens, segments, (0, 0), hashing, len(tokens))]
        if answer["hashes"] == ours:
            return hashing, ""
        if len(answer["hashes"]) != len(ours):
            return None, f"block size: the engine made {len(answer['hashes'])} hashes of {3 * size}"
        standard = Hashing(hashing.fingerprint, root_of(), size)
        if answer["hashes"] == [
            one.hex() for one in self._full(tokens, segments, (0, 0), standard, len(tokens))
        ]:
            return standard, ""  # it told another root than it uses
        if hashing.root != standard.root:
            return None, (
                f"seed: the engine does not start from {DEFAULT_SEED!r}. Unset PYTHONHASHSEED."
            )
        return None, "block hashes: the same tokens and scopes give others than ours"

    def _full(
        self,
        tokens: Tokens,
        segments: Sequence[Segment],
        epochs: Sequence[int],
        hashing: Hashing,
        upto: int,
    ) -> list[EngineHash]:
        ends = [segment.end for segment in segments if segment.end is not None]
        scopes = [
            (self._issuer.scope_id(segment.scope), epoch)
            for segment, epoch in zip(segments, epochs, strict=True)
        ]
        tagger = BlockTagger(hashing.fingerprint, ends, scopes)
        return self._hasher.chain(
            tokens.ids()[:upto], tagger, block_size=hashing.block_size, root=hashing.root
        )
