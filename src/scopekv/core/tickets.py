"""Tickets: the signed grant that lets an engine share blocks (design: capability).

    ticket := base64url( version(1) body signature(64) ), no padding
    body   := encode("scopekv/ticket/1", key_id, issued_ms, ttl_ms, audience, namespace,
                     principal, nonce, uses, [(end | None, scope_id, epoch, digest), ...])

The signature (Ed25519, RFC 8032) covers version and body. The gateway signs; engines hold the
public key only. A digest is SHA-256 over the token ids before `end`, so a grant is worth nothing
for other text. Layout and vectors: docs/formats.md, tests/vectors/tickets.json.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NewType

from scopekv.core.blocks import Fingerprint
from scopekv.core.encoding import Value, decode, encode, encode_tokens
from scopekv.core.reasons import TicketReason
from scopekv.core.scopes import Pseudonym, ScopeId
from scopekv.core.segments import SEGMENTS_MAX
from scopekv.errors import Misuse, TicketExpired, TicketInvalid

KeyId = NewType("KeyId", bytes)  # 8 bytes
AudienceId = NewType("AudienceId", bytes)  # 16 bytes
Sign = Callable[[bytes], bytes]
Check = Callable[[bytes, bytes], bool]  # (message, signature) -> genuine?

VERSION = b"\x01"
DOMAIN = "scopekv/ticket/1"
SIGNATURE_BYTES = 64
TICKET_CHARS_MAX = 8192
TTL_MS_MAX = 3_600_000
USES_MAX = 4096
TOKENS_MAX = 2**31
SKEW_MS = 5_000
_SIZES = {"key_id": 8, "audience": 16, "namespace": 32, "principal": 16, "nonce": 16}


@dataclass(frozen=True, slots=True)
class Grant:
    """Tokens up to `end` (exclusive; None: open) may be shared under (scope, epoch).

    `digest`: SHA-256 over all token ids before `end`; empty for the open grant.
    """

    end: int | None
    scope: ScopeId
    epoch: int
    digest: bytes

    def __post_init__(self) -> None:
        if len(self.scope) != 16 or not 0 <= self.epoch < 2**63:
            raise Misuse("a grant has a scope id of 16 bytes and an epoch from 0")
        if self.end is None:
            if self.digest:
                raise Misuse("the open grant has no digest")
        elif not 0 < self.end <= TOKENS_MAX or len(self.digest) != 32:
            raise Misuse("a closed grant has an end above 0 and a digest of 32 bytes")


@dataclass(frozen=True, slots=True)
class Ticket:
    """What is signed. Times are Unix milliseconds; `uses` bounds how many sequences it serves."""

    key_id: KeyId
    issued_ms: int
    ttl_ms: int
    audience: AudienceId
    namespace: Fingerprint
    principal: Pseudonym
    nonce: bytes
    uses: int
    grants: tuple[Grant, ...]

    def __post_init__(self) -> None:
        for name, size in _SIZES.items():
            if len(getattr(self, name)) != size:
                raise Misuse(f"ticket field {name} must have {size} bytes")
        if not (0 < self.ttl_ms <= TTL_MS_MAX and 0 <= self.issued_ms < 2**53):
            raise Misuse(f"a ticket lives 1 to {TTL_MS_MAX} ms")
        if not 1 <= self.uses <= USES_MAX:
            raise Misuse(f"a ticket serves 1 to {USES_MAX} sequences")
        ends = [grant.end for grant in self.grants]
        if not 1 <= len(ends) <= SEGMENTS_MAX or ends[-1] is not None:
            raise Misuse(f"a ticket has 1 to {SEGMENTS_MAX} grants, the last one open")
        closed = [end for end in ends[:-1] if end is not None]
        if len(closed) != len(ends) - 1 or any(a >= b for a, b in pairwise(closed)):
            raise Misuse("grant ends must rise, and only the last grant is open")


def audience_id(instance_group: str) -> AudienceId:
    """The 16-byte name of a group of engines that a ticket is for."""
    return AudienceId(hashlib.sha256(encode("scopekv/audience/1", instance_group)).digest()[:16])


def key_id(public_key: bytes) -> KeyId:
    return KeyId(hashlib.sha256(encode("scopekv/key/1", public_key)).digest()[:8])


def prefix_digests(
    token_bytes: bytes, ends: Sequence[int], begun: tuple[int, Any] | None = None
) -> list[bytes]:
    """SHA-256 over the first `end` tokens, for each of the rising `ends`.

    `token_bytes`: `encode_tokens` of the whole prompt. `begun`: the hash object over so many first
    tokens, at most the first end; it is not changed. Cost: one pass from there up to the last end.
    """
    done, running = (begun[0], begun[1].copy()) if begun is not None else (0, hashlib.sha256())
    digests = []
    for end in ends:
        running.update(token_bytes[4 * done : 4 * end])
        done = end
        digests.append(running.digest())
    return digests


def mint(ticket: Ticket, sign: Sign) -> str:
    """Return the written ticket: at most `TICKET_CHARS_MAX` characters."""
    grants: list[Value] = [(g.end, g.scope, g.epoch, g.digest) for g in ticket.grants]
    signed = VERSION + encode(
        DOMAIN,
        ticket.key_id,
        ticket.issued_ms,
        ticket.ttl_ms,
        ticket.audience,
        ticket.namespace,
        ticket.principal,
        ticket.nonce,
        ticket.uses,
        grants,
    )
    return base64.urlsafe_b64encode(signed + sign(signed)).rstrip(b"=").decode("ascii")


def verify(
    text: object,
    *,
    keys: Mapping[KeyId, Check],
    now_ms: int,
    audience: AudienceId,
    namespace: Fingerprint,
) -> Ticket:
    """Return the ticket if it is genuine, in time, and for this engine; else raise.

    `text` is whatever the request carried. Raises `TicketInvalid` or `TicketExpired`, whose
    `reason` is a `TicketReason`. Says nothing about the tokens: see `granted_prefix`.
    """
    ticket = _genuine(text, keys, audience)
    if ticket.namespace != namespace:
        raise TicketInvalid(TicketReason.OTHER_NAMESPACE)
    return _in_time(ticket, now_ms)


def verify_for_broker(
    text: object, *, keys: Mapping[KeyId, Check], now_ms: int, audience: AudienceId
) -> Ticket:
    """`verify` for whoever serves every namespace of one instance group: the key broker."""
    return _in_time(_genuine(text, keys, audience), now_ms)


def narrow(ticket: Ticket, keep: int) -> Ticket:
    """Keep the first `keep` grants; all that follows belongs to the last, narrowest scope.

    Never widens: the result grants a subset (law: test_narrowing_never_widens). A narrowed ticket
    must be signed again to travel.
    """
    if keep < 0:
        raise Misuse("cannot keep fewer than 0 grants")
    return replace(ticket, grants=(*ticket.grants[:-1][:keep], ticket.grants[-1]))


def matching_grants(ticket: Ticket, token_ids: Sequence[int]) -> int:
    """Return how many leading grants hold for these tokens: digests equal, ends inside.

    Cost: one SHA-256 pass over the longest granted prefix.
    """
    closed = [(grant.end, grant.digest) for grant in ticket.grants if grant.end is not None]
    inside = [end for end, _ in closed if end <= len(token_ids)]
    if not inside:
        return 0
    try:
        digests = prefix_digests(encode_tokens(token_ids[: inside[-1]]), inside)
    except Misuse:
        return 0  # what has no encoding has no digest
    for index, digest in enumerate(digests):
        if digest != closed[index][1]:
            return index
    return len(digests)


def _genuine(text: object, keys: Mapping[KeyId, Check], audience: AudienceId) -> Ticket:
    ticket, signed, signature = _parse(text)
    check = keys.get(ticket.key_id)
    if check is None:
        raise TicketInvalid(TicketReason.UNKNOWN_KEY)
    if not check(signed, signature):
        raise TicketInvalid(TicketReason.BAD_SIGNATURE)
    if ticket.audience != audience:
        raise TicketInvalid(TicketReason.OTHER_AUDIENCE)
    return ticket


def _in_time(ticket: Ticket, now_ms: int) -> Ticket:
    if now_ms < ticket.issued_ms - SKEW_MS:
        raise TicketExpired(TicketReason.NOT_YET)
    if now_ms >= ticket.issued_ms + ticket.ttl_ms + SKEW_MS:
        raise TicketExpired(TicketReason.EXPIRED)
    return ticket


def _parse(text: object) -> tuple[Ticket, bytes, bytes]:
    if not isinstance(text, str) or not 0 < len(text) <= TICKET_CHARS_MAX:
        raise TicketInvalid(TicketReason.MALFORMED)
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        if base64.urlsafe_b64encode(raw).rstrip(b"=").decode("ascii") != text:
            raise Misuse("not the canonical spelling")
        signed, signature = raw[:-SIGNATURE_BYTES], raw[-SIGNATURE_BYTES:]
        if len(signature) != SIGNATURE_BYTES or signed[:1] != VERSION:
            raise Misuse("too short, or of another version")
        ticket = _ticket(decode(DOMAIN, signed[1:]))
    except (Misuse, binascii.Error, ValueError, TypeError) as error:
        raise TicketInvalid(TicketReason.MALFORMED) from error
    return ticket, signed, signature


def _ticket(fields: tuple[Value, ...]) -> Ticket:
    if len(fields) != 9 or not isinstance(fields[8], tuple):
        raise Misuse("a ticket has 9 fields, the last a sequence")
    key, audience, namespace, principal, nonce = (_bytes(fields[i]) for i in (0, 3, 4, 5, 6))
    return Ticket(
        KeyId(key),
        _int(fields[1]),
        _int(fields[2]),
        AudienceId(audience),
        Fingerprint(namespace),
        Pseudonym(principal),
        nonce,
        _int(fields[7]),
        tuple(_grant(item) for item in fields[8]),
    )


def _grant(item: Value) -> Grant:
    if not isinstance(item, tuple) or len(item) != 4:
        raise Misuse("a grant has 4 fields")
    end = None if item[0] is None else _int(item[0])
    return Grant(end, ScopeId(_bytes(item[1])), _int(item[2]), _bytes(item[3]))


def _bytes(value: Value) -> bytes:
    if not isinstance(value, bytes):
        raise Misuse("expected bytes")
    return value


def _int(value: Value) -> int:
    if not isinstance(value, int):
        raise Misuse("expected an integer")
    return value
