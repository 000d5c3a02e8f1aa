"""From a prompt's segments to what goes to an engine: the ticket and the fail-safe salt."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import OrderedDict
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
BEGUN_TOKENS_MIN = 256  # fewer are hashed as quickly as they are looked up
BEGUN_BYTES_MAX = 16 << 20
_NONE = (b"", None)


class Begun:
    """SHA-256 of how prompts begin: of their first segments, each kept for its scope and epoch.

    A document, or an organisation's instructions, begins many prompts and is hashed once. Bounded.
    """

    def __init__(self, bytes_max: int = BEGUN_BYTES_MAX) -> None:
        self._kept: OrderedDict[tuple[Scope, int, int], tuple[bytes, Any]] = OrderedDict()
        self._bytes, self._bytes_max = 0, bytes_max

    @property
    def held_bytes(self) -> int:
        return self._bytes

    def digests(
        self, scope: Scope, epoch: int, token_bytes: bytes, ends: Sequence[int]
    ) -> list[bytes]:
        """As `prefix_digests`; `scope` and `epoch`: of what lies before the first end."""
        size = 4 * ends[0] if ends else 0
        if not 4 * BEGUN_TOKENS_MIN <= size <= len(token_bytes):
            return prefix_digests(token_bytes, ends)
        key = (scope, epoch, ends[0])
        text, state = self._kept.get(key, _NONE)
        if state is None or not token_bytes.startswith(text):
            self._bytes -= len(text)
            text = token_bytes[:size]
            state = hashlib.sha256(text)
            self._kept[key] = (text, state)
            self._bytes += len(text)
        self._kept.move_to_end(key)
        while self._bytes > self._bytes_max:
            self._bytes -= len(self._kept.popitem(last=False)[1][0])
        return prefix_digests(token_bytes, ends, begun=(ends[0], state))


@dataclass(frozen=True, slots=True, repr=False)
class Issuer:
    """Mints tickets for one group of engines. `secret`: 32 bytes, makes names opaque."""

    key_id: KeyId
    sign: Sign
    secret: bytes
    audience: AudienceId
    ttl_ms: int
    _names: dict[object, Any] = field(default_factory=dict, init=False, compare=False)
    _begun: Begun = field(default_factory=Begun, init=False, compare=False)

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
        digests: list[bytes] = []
        if tokens is not None:
            digests = self._begun.digests(segments[0].scope, epochs[0], tokens.packed, ends)
        closed = zip(segments, epochs, (*ends, None), (*digests, b""), strict=True)
        grants = [
            Grant(end, self.scope_id(one.scope), epoch, sha) for one, epoch, end, sha in closed
        ]
        ticket = Ticket(
            key_id=self.key_id,
            issued_ms=time.time_ns() // 1_000_000,
            ttl_ms=self.ttl_ms,
            audience=self.audience,
            namespace=namespace,
            principal=self._opaque(
                (principal.org_uid, principal.uid), lambda: principal.pseudonym(self.secret)
            ),
            nonce=secrets.token_bytes(16),
            uses=uses,
            grants=tuple(grants),
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
