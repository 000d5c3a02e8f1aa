"""From a prompt's segments to what goes to an engine: the ticket and the fail-safe salt."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass

from scopekv.core.blocks import Fingerprint
from scopekv.core.scopes import Principal
from scopekv.core.segments import Segment
from scopekv.core.tickets import (
    AudienceId,
    Grant,
    KeyId,
    Sign,
    Ticket,
    audience_id,
    mint,
    prefix_digests,
)
from scopekv.gateway.tokens import Tokens


@dataclass(frozen=True, slots=True, repr=False)
class Issuer:
    """Mints tickets for one group of engines. `secret`: 32 bytes, makes names opaque."""

    key_id: KeyId
    sign: Sign
    secret: bytes
    instance_group: str
    ttl_ms: int

    @property
    def audience(self) -> AudienceId:
        return audience_id(self.instance_group)

    def salt(self, segments: Sequence[Segment]) -> str:
        """The salt of the narrowest scope, for an engine whose plugin is absent or broken (L3)."""
        return segments[-1].scope.salt(self.secret)

    def ticket(
        self,
        principal: Principal,
        segments: Sequence[Segment],
        epochs: Sequence[int],
        tokens: Tokens | None,
        *,
        namespace: Fingerprint,
        uses: int,
    ) -> str:
        """Return a signed ticket for these segments of these tokens.

        Without tokens there is one open segment, which needs no digest.
        """
        ends = [segment.end for segment in segments if segment.end is not None]
        digests = prefix_digests(tokens.packed, ends) if tokens is not None else []
        grants = tuple(
            Grant(end, segment.scope.id(self.secret), epoch, digest)
            for segment, epoch, end, digest in zip(
                segments, epochs, (*ends, None), (*digests, b""), strict=True
            )
        )
        ticket = Ticket(
            key_id=self.key_id,
            issued_ms=time.time_ns() // 1_000_000,
            ttl_ms=self.ttl_ms,
            audience=self.audience,
            namespace=namespace,
            principal=principal.pseudonym(self.secret),
            nonce=secrets.token_bytes(16),
            uses=uses,
            grants=grants,
        )
        return mint(ticket, self.sign)
