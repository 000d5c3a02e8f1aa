"""What an engine makes of a ticket (L3): tags for its blocks, and never a wider scope.

No ticket, or one that does not verify: tags that nobody else can have. A ticket whose digests
differ from some segment on: what differs belongs to the last, narrowest scope.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from scopekv.core.blocks import BlockTagger, Fingerprint
from scopekv.core.reasons import TicketReason
from scopekv.core.replay import UseLedger
from scopekv.core.scopes import ScopeId
from scopekv.core.tickets import (
    AudienceId,
    Check,
    KeyId,
    Ticket,
    matching_grants,
    narrow,
    verify,
)
from scopekv.errors import TicketInvalid


class Tags(Protocol):
    """The extra key of each block of one request."""

    def tag(self, start: int, end: int) -> str: ...


class IsolatedTags:
    """Tags that no other request has: `nonce` (16 bytes) is drawn anew for each."""

    __slots__ = ("_tag",)

    def __init__(self, nonce: bytes) -> None:
        self._tag = f"isolated-{nonce.hex()}"

    def tag(self, start: int, end: int) -> str:  # noqa: ARG002 - the shape of Tags
        return self._tag


@dataclass(frozen=True, slots=True)
class Gate:
    """An engine's side of every check: who may have signed, for whom, for which namespace.

    `fences`: the lowest epoch of a scope that still counts here; a scope without one has none.
    """

    keys: Mapping[KeyId, Check]
    audience: AudienceId
    namespace: Fingerprint
    fences: Mapping[ScopeId, int]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Tags to use, why, and the ticket as far as it holds for the tokens (None: isolated)."""

    tags: Tags
    reason: TicketReason
    ticket: Ticket | None


def judge(
    ticket_text: object,
    token_ids: Sequence[int] | None,
    *,
    gate: Gate,
    ledger: UseLedger,
    now_ms: int,
    monotonic_ms: int,
    nonce: bytes,
    adapter: bytes,
) -> Verdict:
    """Return the verdict on one request. Never raises for what the request carried.

    Cost: one Ed25519 check, one SHA-256 pass over the granted prefix.
    """
    if ticket_text is None:
        return Verdict(IsolatedTags(nonce), TicketReason.ABSENT, None)
    if token_ids is None:
        return Verdict(IsolatedTags(nonce), TicketReason.WITHOUT_IDS, None)
    try:
        ticket = verify(
            ticket_text,
            keys=gate.keys,
            now_ms=now_ms,
            audience=gate.audience,
            namespace=gate.namespace,
        )
    except TicketInvalid as refusal:
        return Verdict(IsolatedTags(nonce), TicketReason(refusal.reason), None)
    if any(grant.epoch < gate.fences.get(grant.scope, 0) for grant in ticket.grants):
        return Verdict(IsolatedTags(nonce), TicketReason.REVOKED, None)
    if not ledger.take(ticket, monotonic_ms):
        return Verdict(IsolatedTags(nonce), TicketReason.USED_UP, None)
    matching = matching_grants(ticket, token_ids)
    held = narrow(ticket, matching)
    drifted = matching < len(ticket.grants) - 1
    reason = TicketReason.DIGEST_MISMATCH if drifted else TicketReason.OK
    return Verdict(tags_for(held, gate.namespace, adapter), reason, held)


def tags_for(ticket: Ticket, namespace: Fingerprint, adapter: bytes) -> BlockTagger:
    """The tags of a verified ticket whose digests hold."""
    ends = [grant.end for grant in ticket.grants if grant.end is not None]
    scopes = [(grant.scope, grant.epoch) for grant in ticket.grants]
    return BlockTagger(namespace, ends, scopes, adapter)
