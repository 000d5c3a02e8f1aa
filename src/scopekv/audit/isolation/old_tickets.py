"""Tickets from before a revocation, sent at the engine after it: good in all but their epoch.

A gateway mints none any more, but one that is on its way, or that somebody kept, still verifies.
"""

from __future__ import annotations

import hashlib
from typing import Any

from scopekv.audit.endpoint import COMPLETIONS, Endpoint
from scopekv.audit.isolation.asking import Asking
from scopekv.audit.isolation.cells import Cell, Outcome
from scopekv.audit.isolation.target import EngineAccess, Forge, Place
from scopekv.audit.isolation.tickets import Mint
from scopekv.core.encoding import encode
from scopekv.core.scopes import ScopeId

PURGE = "/v1/scopekv/purge"


async def try_old_tickets(
    asking: Asking, engine: EngineAccess, forge: Forge, status: dict[str, Any]
) -> list[Cell]:
    """Fill, purge the scope's epoch, send two more tickets of that epoch; then of the next."""
    seed = encode("scopekv/audit/1", asking.settings.seed, "old epoch", len(asking.times))
    scope = ScopeId(hashlib.sha256(seed).digest()[:16])
    mint = Mint(forge, bytes.fromhex(status["fingerprint"]), scope)
    prompt = asking.texts.text()
    async with Endpoint(engine.url) as door:
        model = (await door.models(engine.api_key))[0]

        async def send(epoch: int) -> int:
            """Tokens from the cache; none of an answer that refuses."""
            body = {
                "model": model,
                "prompt": prompt,
                "max_tokens": 1,
                "cache_salt": "audit",
                "kv_transfer_params": {"scopekv": mint.genuine(epoch=epoch)},
            }
            asking.requests += 1
            reply = await door.call("POST", COMPLETIONS, body, key=engine.api_key)
            return reply.cached_tokens or 0

        await send(0)
        before = await send(0)
        scopes = {"scopes": [[scope.hex(), 0]]}
        while _busy(await door.call("POST", PURGE, scopes, key=engine.api_key)):
            continue
        old = max([await send(0) for _ in range(2)])
        fresh = [await send(1) for _ in range(2)]

    def cell(caller: str, cached: int, allowed: bool) -> Cell:
        return Cell(
            group="tickets.from_before_a_revocation",
            place=Place.ENGINE.value,
            endpoint=COMPLETIONS,
            model=model,
            owner=f"a scope of the audit's own, at {engine.name}",
            caller=caller,
            allowed=allowed,
            outcome=Outcome.HIT if cached else Outcome.MISS,
            cached=cached,
            proved=before > 0,
        )

    return [
        cell("a ticket of the old epoch, before", before, True),
        cell("a ticket of the old epoch, after", old, False),
        cell("the first ticket of the new epoch", fresh[0], False),
        cell("a ticket of the new epoch", fresh[1], True),
    ]


def _busy(reply: Any) -> bool:
    lines = reply.body.get("lines") if isinstance(reply.body, dict) else None
    return bool(reply.ok and lines and any(line["busy"] for line in lines))
