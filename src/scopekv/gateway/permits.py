"""From a prompt's segments to what goes to an engine: the ticket and the fail-safe salt."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from scopekv.core.blocks import Fingerprint
from scopekv.core.scopes import Principal, Scope, ScopeId
from scopekv.core.segments import Segment
from scopekv.core.tickets import (
    AudienceId,
    Grant,
    KeyId,
    Sign,
    Ticket,
    mint,
    prefix_digests,
)
from scopekv.gateway.tokens import Tokens

NAMES_MAX = 20_000


@dataclass(frozen=True, slots=True, repr=False)
class Issuer:
    """Mints tickets for one group of engines. `secret`: 32 bytes, makes names opaque."""

    key_id: KeyId
    sign: Sign
    secret: bytes
    audience: AudienceId
    ttl_ms: int
    _names: dict[object, Any] = field(default_factory=dict, init=False, compare=False)

    def salt(self, segments: Sequence[Segment], epochs: Sequence[int]) -> str:
        """The salt of the narrowest scope, for an engine whose plugin is absent or broken (L3)."""
        scope, epoch = segments[-1].scope, epochs[-1]
        return str(self._opaque((scope, epoch), lambda: scope.salt(self.secret, epoch)))

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
            Grant(end, self.scope_id(segment.scope), epoch, digest)
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
            principal=self._opaque(principal, lambda: principal.pseudonym(self.secret)),
            nonce=secrets.token_bytes(16),
            uses=uses,
            grants=grants,
        )
        return mint(ticket, self.sign)

    def scope_id(self, scope: Scope) -> ScopeId:
        """The opaque name under which engines know a scope."""
        return ScopeId(self._opaque(scope, lambda: scope.id(self.secret)))

    def _opaque(self, key: object, make: Callable[[], Any]) -> Any:
        """A keyed name, kept: it is the same each time. Bounded."""
        name = self._names.get(key)
        if name is None:
            if len(self._names) >= NAMES_MAX:
                self._names.clear()
            name = self._names[key] = make()
        return name
