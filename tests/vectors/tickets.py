"""Vectors of tickets: two that verify, and each way in which one does not."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

from scopekv.adapters.ed25519 import TicketSigner
from scopekv.core.blocks import Fingerprint
from scopekv.core.encoding import encode_tokens
from scopekv.core.reasons import TicketReason
from scopekv.core.scopes import Principal
from scopekv.core.tickets import Grant, Ticket, audience_id, mint, prefix_digests
from tests.vectors.fixed import (
    DOCUMENT,
    NAMESPACE,
    NOW_MS,
    ORG,
    OTHER_SEED,
    SECRET,
    SEED,
    TTL_MS,
    USER,
)


def good_ticket(signer: TicketSigner) -> Ticket:
    """Tokens 0 to 63: [0, 32) a document, [32, 40) the organisation, the rest the user's."""
    digests = prefix_digests(encode_tokens(range(64)), [32, 40])
    return Ticket(
        key_id=signer.key_id,
        issued_ms=NOW_MS,
        ttl_ms=TTL_MS,
        audience=audience_id("default"),
        namespace=NAMESPACE.fingerprint(),
        principal=Principal("acme", "ann", "org_1", "usr_2").pseudonym(SECRET),
        nonce=bytes(range(16)),
        uses=1,
        grants=(
            Grant(32, DOCUMENT.id(SECRET), 0, digests[0]),
            Grant(40, ORG.id(SECRET), 2, digests[1]),
            Grant(None, USER.id(SECRET), 3, b""),
        ),
    )


def tickets() -> dict[str, Any]:
    signer, stranger = TicketSigner(SEED), TicketSigner(OTHER_SEED)
    good = good_ticket(signer)
    text, plain = mint(good, signer.sign), replace(good, grants=good.grants[-1:])
    raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    forged = bytearray(raw)
    forged[-1] ^= 1
    unversioned = bytearray(raw)
    unversioned[0] = 2
    away = replace(good, namespace=Fingerprint(bytes(32)))
    reason = TicketReason
    invalid: list[tuple[str, str, int, TicketReason]] = [
        ("empty", "", NOW_MS, reason.MALFORMED),
        ("cut short", text[:-4], NOW_MS, reason.MALFORMED),
        ("padded", text + "=" * (-len(text) % 4 or 4), NOW_MS, reason.MALFORMED),
        ("in standard base64", base64.b64encode(raw).decode(), NOW_MS, reason.MALFORMED),
        ("of another version", _text(unversioned), NOW_MS, reason.MALFORMED),
        ("one bit of the signature", _text(forged), NOW_MS, reason.BAD_SIGNATURE),
        ("another's signature", mint(good, stranger.sign), NOW_MS, reason.BAD_SIGNATURE),
        (
            "another's key",
            mint(replace(good, key_id=stranger.key_id), stranger.sign),
            NOW_MS,
            reason.UNKNOWN_KEY,
        ),
        (
            "altered offset",
            mint(
                replace(good, grants=(replace(good.grants[0], end=33), *good.grants[1:])),
                lambda _: raw[-64:],
            ),
            NOW_MS,
            reason.BAD_SIGNATURE,
        ),
        (
            "for other engines",
            mint(replace(good, audience=audience_id("other")), signer.sign),
            NOW_MS,
            reason.OTHER_AUDIENCE,
        ),
        ("for another namespace", mint(away, signer.sign), NOW_MS, reason.OTHER_NAMESPACE),
        ("expired", text, NOW_MS + TTL_MS + 5_000, reason.EXPIRED),
        ("not yet", text, NOW_MS - 5_001, reason.NOT_YET),
    ]
    return {
        "seed": SEED.hex(),
        "public_key": signer.public_key.hex(),
        "key_id": signer.key_id.hex(),
        "instance_group": "default",
        "audience": audience_id("default").hex(),
        "namespace": good.namespace.hex(),
        "issued_ms": NOW_MS,
        "ttl_ms": TTL_MS,
        "valid": [
            {
                "name": name,
                "ticket": mint(ticket, signer.sign),
                "now_ms": NOW_MS,
                "principal": ticket.principal.hex(),
                "nonce": ticket.nonce.hex(),
                "uses": ticket.uses,
                "grants": [[g.end, g.scope.hex(), g.epoch, g.digest.hex()] for g in ticket.grants],
            }
            for name, ticket in (
                ("document, organisation, user", good),
                ("the caller's own alone", plain),
            )
        ],
        "invalid": [
            {"name": name, "ticket": bad, "now_ms": at, "reason": reason.value}
            for name, bad, at, reason in invalid
        ],
    }


def _text(raw: bytes | bytearray) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode("ascii")
