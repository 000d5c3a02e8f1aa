"""Tickets of every kind for tests and attacks: good ones, and those an engine must refuse."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from scopekv.compose import World
from scopekv.core.blocks import Fingerprint
from scopekv.core.encoding import encode, encode_tokens
from scopekv.core.scopes import Pseudonym, ScopeId
from scopekv.core.tickets import Grant, Ticket, audience_id, mint, prefix_digests


@dataclass(frozen=True, slots=True, repr=False)
class TicketMaker:
    """Signs with the deployment's own key, so that only what a test changes is wrong."""

    world: World
    fingerprint: Fingerprint
    instance_group: str = "default"

    def ticket(
        self, token_ids: Sequence[int], ends: Sequence[int], scopes: Sequence[str], **changes: Any
    ) -> Ticket:
        """A good ticket over these tokens; `changes` replace its fields. One more scope than ends.

        Scopes are words of the test's own: equal words are one scope, apart from every real one.
        """
        digests = prefix_digests(encode_tokens(token_ids), ends)
        grants = tuple(
            Grant(end, _scope(word), 0, digest)
            for word, end, digest in zip(scopes, (*ends, None), (*digests, b""), strict=True)
        )
        made = Ticket(
            key_id=self.world.signer.key_id,
            issued_ms=time.time_ns() // 1_000_000,
            ttl_ms=30_000,
            audience=audience_id(self.instance_group),
            namespace=self.fingerprint,
            principal=Pseudonym(bytes(16)),
            nonce=secrets.token_bytes(16),
            uses=1,
            grants=grants,
        )
        return replace(made, **changes)

    def sign(self, ticket: Ticket) -> str:
        """The written form."""
        return mint(ticket, self.world.signer.sign)

    def text(
        self, token_ids: Sequence[int], ends: Sequence[int], scopes: Sequence[str], **changes: Any
    ) -> str:
        """`ticket`, signed."""
        return self.sign(self.ticket(token_ids, ends, scopes, **changes))


def _scope(word: str) -> ScopeId:
    return ScopeId(hashlib.sha256(encode("scopekv/simulated scope/1", word)).digest()[:16])
