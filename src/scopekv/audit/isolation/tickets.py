"""Tickets sent straight at an engine, past the gateway: good ones, and those that are not.

For each: a genuine ticket fills, the false one asks for the same tokens, a fresh genuine one must
hit. All are for a scope of the audit's own that no caller has. Expired means: minted with times
that are long past, so no clock is waited for.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from scopekv.adapters.ed25519 import TicketSigner
from scopekv.audit.endpoint import COMPLETIONS, Endpoint
from scopekv.audit.isolation.asking import Asking
from scopekv.audit.isolation.cells import Cell, Outcome
from scopekv.audit.isolation.target import EngineAccess, Forge, Place
from scopekv.core.blocks import Fingerprint
from scopekv.core.encoding import encode
from scopekv.core.scopes import Pseudonym, ScopeId
from scopekv.core.tickets import Grant, KeyId, Ticket, audience_id, key_id, mint

TTL_MS = 60_000
AGE_MS = 86_400_000
GRANTED_TOKENS = 64


def open_ticket(
    forge: Forge,
    scope: ScopeId,
    fingerprint: bytes,
    *,
    issued_ms: int,
    nonce: bytes,
    group: str | None = None,
    signer: TicketSigner | None = None,
    epoch: int = 0,
    before: tuple[Grant, ...] = (),
) -> str:
    """A ticket for whole prompts under one scope. `signer`: sign with its key, in its name.

    `before`: closed grants of other scopes that stand first.
    """
    ticket = Ticket(
        key_id=KeyId(forge.key_id) if signer is None else key_id(signer.public_key),
        issued_ms=issued_ms,
        ttl_ms=TTL_MS,
        audience=audience_id(forge.instance_group if group is None else group),
        namespace=Fingerprint(fingerprint),
        principal=Pseudonym(bytes(16)),
        nonce=nonce,
        uses=1,
        grants=(*before, Grant(None, scope, epoch, b"")),
    )
    return mint(ticket, forge.sign if signer is None else signer.sign)


@dataclass(frozen=True, slots=True, repr=False)
class Mint:
    """Tickets for one engine; each call makes another nonce."""

    forge: Forge
    fingerprint: bytes
    scope: ScopeId

    def genuine(self, **changes: Any) -> str:
        made: dict[str, Any] = {
            "issued_ms": time.time_ns() // 1_000_000,
            "nonce": secrets.token_bytes(16),
        }
        scope = changes.pop("scope", self.scope)
        fingerprint = changes.pop("fingerprint", self.fingerprint)
        return open_ticket(self.forge, scope, fingerprint, **made | changes)

    def other_scope(self) -> ScopeId:
        return ScopeId(hashlib.sha256(self.scope).digest()[:16])


def _altered(mint_: Mint) -> str:
    """Somebody's good ticket for another scope, with this one's scope written into it."""
    data = _bytes(mint_.genuine(scope=mint_.other_scope()))
    return _text(data.replace(mint_.other_scope(), mint_.scope))


def _flipped(mint_: Mint) -> str:
    data = bytearray(_bytes(mint_.genuine()))
    data[-1] ^= 1
    return _text(bytes(data))


def _for_other_tokens(mint_: Mint) -> str:
    """The scope is granted for a text that begins otherwise."""
    digest = hashlib.sha256(b"another text").digest()
    return mint_.genuine(
        scope=mint_.other_scope(), before=(Grant(GRANTED_TOKENS, mint_.scope, 0, digest),)
    )


def _forged(mint_: Mint) -> str:
    """Signed by a key that the engine does not know."""
    return mint_.genuine(signer=TicketSigner(secrets.token_bytes(32)))


def _forged_in_name(mint_: Mint) -> str:
    """The same, in the name of the key that it does know."""
    signer = TicketSigner(secrets.token_bytes(32))
    own = _bytes(mint_.genuine())
    return _text(own[:-64] + signer.sign(own[:-64]))


FALSE_TICKETS: dict[str, Callable[[Mint], str | None]] = {
    "absent": lambda _: None,
    "empty": lambda _: "",
    "forged": _forged,
    "forged_in_a_known_name": _forged_in_name,
    "altered": _altered,
    "altered_in_its_signature": _flipped,
    "truncated": lambda mint_: mint_.genuine()[:-8],
    "cut_in_half": lambda mint_: (made := mint_.genuine())[: len(made) // 2],
    "expired": lambda mint_: mint_.genuine(issued_ms=time.time_ns() // 1_000_000 - AGE_MS),
    "not_yet_valid": lambda mint_: mint_.genuine(issued_ms=time.time_ns() // 1_000_000 + AGE_MS),
    "for_other_engines": lambda mint_: mint_.genuine(group="audit-no-such-group"),
    "for_another_model": lambda mint_: mint_.genuine(fingerprint=bytes(32)),
    "for_other_tokens": _for_other_tokens,
    "for_another_scope": lambda mint_: mint_.genuine(scope=mint_.other_scope()),
}


async def try_tickets(
    asking: Asking, engine: EngineAccess, forge: Forge, status: dict[str, Any]
) -> list[Cell]:
    """Every false ticket at one engine, and one that was used up."""
    cells: list[Cell] = []
    async with Endpoint(engine.url) as door:
        model = (await door.models(engine.api_key))[0]
        fingerprint = bytes.fromhex(status["fingerprint"])

        async def send(prompt: str, ticket: str | None) -> tuple[int, int]:
            """Status, and tokens from the cache."""
            body: dict[str, Any] = {"model": model, "prompt": prompt, "max_tokens": 1}
            if ticket is not None:
                body["kv_transfer_params"] = {"scopekv": ticket}
            body["cache_salt"] = "audit"  # the same for all: it must not be what keeps them apart
            asking.requests += 1
            reply = await door.call("POST", COMPLETIONS, body, key=engine.api_key)
            return reply.status, reply.cached_tokens or 0

        for name in (*FALSE_TICKETS, "used_up"):
            seed = encode("scopekv/audit/1", asking.settings.seed, name)
            own = Mint(forge, fingerprint, ScopeId(hashlib.sha256(seed).digest()[:16]))
            prompt = asking.texts.text()
            used = own.genuine()
            await send(prompt, used)
            false = used if name == "used_up" else FALSE_TICKETS[name](own)
            refused = await send(prompt, false)
            # Once more: nor may it find what it left behind itself.
            refused = max(refused, await send(prompt, false), key=lambda found: found[1])
            back = await send(prompt, own.genuine())
            cells += _cells(name, engine, model, refused, back)
    return cells


def _cells(
    name: str, engine: EngineAccess, model: str, tried: tuple[int, int], back: tuple[int, int]
) -> list[Cell]:
    """A refusal (4xx) is as good as a miss here: the engine may be told to refuse."""

    def cell(caller: str, found: tuple[int, int], allowed: bool) -> Cell:
        status, cached = found
        outcome = Outcome.HIT if cached else Outcome.MISS
        if status >= 500 or (allowed and status != 200):
            outcome = Outcome.FAILED
        return Cell(
            group=f"tickets.{name}",
            place=Place.ENGINE.value,
            endpoint=COMPLETIONS,
            model=model,
            owner=f"a scope of the audit's own, at {engine.name}",
            caller=caller,
            allowed=allowed,
            outcome=outcome,
            cached=cached,
            proved=back[0] == 200 and back[1] > 0,
            error="" if status == 200 else str(status),
        )

    return [cell("the false ticket", tried, False), cell("a genuine ticket", back, True)]


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")
