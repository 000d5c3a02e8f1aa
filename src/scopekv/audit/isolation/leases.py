"""The key broker, asked as an engine would: keys only against a genuine ticket, and only its own.

Whoever took over one engine has its secret and the tickets that it was sent (T10).
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from typing import Any

from scopekv.audit.endpoint import CHAT
from scopekv.audit.isolation.asking import Asking
from scopekv.audit.isolation.jobs import stranger_of
from scopekv.audit.isolation.matrix import Caller
from scopekv.audit.isolation.target import Forge
from scopekv.audit.isolation.texts import Prompt
from scopekv.audit.isolation.tickets import open_ticket
from scopekv.audit.results import Check, Verdict
from scopekv.core.scopes import ScopeId
from scopekv.ports import LEASES_PATH

NAME = "isolation.leases"
TITLE = "The key broker gives an engine the keys of its genuine tickets' scopes, and no others"
EPOCHS_MAX = 16
_OTHERS = "audit-no-such-group"
_NAMESPACE = bytes(32)  # the broker serves every one


async def leases_check(asking: Asking, callers: Sequence[Caller]) -> Check:
    """Two callers' scopes, each with a genuine ticket; a forged one; one of another group."""
    forge = asking.target.forge
    if forge is None or not forge.instance_secret:
        summary = "needs the data directory with the deployment's keys"
        return Check(NAME, TITLE, Verdict.NOT_TESTED, summary)
    plain = [caller for caller in callers if not caller.end_user and not caller.session]
    both = (plain[0], stranger_of(plain))
    scopes, own = [], []
    epoch, found = 0, dict[str, str]()
    for caller in both:
        prompt = Prompt(CHAT, asking.target.model, asking.texts.text(), asking.texts.tail())
        await asking.ask(caller, prompt)  # so that its scope has a key
        scopes.append(await _scope(asking, forge, caller))
        for epoch in range(EPOCHS_MAX):  # the audit has revoked some
            found = await _leased(asking, forge, _ticket(forge, scopes[-1], epoch=epoch))
            if found:
                break
        own.append(found)
    forged = _ticket(forge, scopes[-1], epoch=epoch)
    broken = []
    if await _leased(asking, forge, forged[:-80] + "A" * 79 + forged[-1]):
        broken.append("a forged ticket got keys")
    if await _leased(asking, forge, _ticket(forge, scopes[-1], epoch=epoch, group=_OTHERS)):
        broken.append("a ticket for other engines got keys")
    if any(set(found) - {scope.hex()} for found, scope in zip(own, scopes, strict=True)):
        broken.append("a ticket got keys of scopes that it does not name")
    keys = [found.get(scope.hex()) for found, scope in zip(own, scopes, strict=True)]
    if keys[0] is not None and keys[0] == keys[1]:
        broken.append("two callers' scopes have one key")
    control = all(keys)
    verdict = Verdict.BROKEN if broken else Verdict.HELD if control else Verdict.BLIND
    return Check(
        name=NAME,
        title=TITLE,
        verdict=verdict,
        summary="; ".join(broken) or f"{sum(map(bool, own))} of 2 genuine tickets got a key",
        tried=4,
        control=f"genuine tickets {'got' if control else 'did not get'} their keys",
    )


async def _scope(asking: Asking, forge: Forge, caller: Caller) -> ScopeId:
    found = await asking.act(lambda: forge.user_scope(*caller.seat))
    return found.id(forge.scope_secret)


def _ticket(forge: Forge, scope: ScopeId, **changes: Any) -> str:
    now_ms, nonce = time.time_ns() // 1_000_000, secrets.token_bytes(16)
    return open_ticket(forge, scope, _NAMESPACE, issued_ms=now_ms, nonce=nonce, **changes)


async def _leased(asking: Asking, forge: Forge, ticket: str) -> dict[str, str]:
    """Keys by scope, as the broker gives them; none where it refuses."""
    asking.requests += 1
    reply = await asking.endpoint.call(
        "POST", LEASES_PATH, {"ticket": ticket}, key=forge.instance_secret
    )
    leases = reply.body.get("leases") if reply.ok and isinstance(reply.body, dict) else None
    return {one["scope"]: one["key"] for one in leases or ()}
