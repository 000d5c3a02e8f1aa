"""Case I1: a client sets what is the server's to set, to another's very value."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from scopekv.audit.endpoint import CHAT
from scopekv.audit.isolation.asking import Answer, Asking
from scopekv.audit.isolation.cells import Cell, Outcome
from scopekv.audit.isolation.matrix import Caller
from scopekv.audit.isolation.target import Forge, Place
from scopekv.audit.isolation.texts import Prompt
from scopekv.audit.isolation.tickets import open_ticket
from scopekv.gateway.bodies import STRIPPED
from scopekv.gateway.http import Headers
from scopekv.gateway.passing import CLAIMS

OBJECTS = ("kv_transfer_params", "ec_transfer_params", "vllm_xargs", "kv_hints")
NUMBERS = ("priority", "data_parallel_rank")
HEADERS = (
    *(b"x-scopekv-user", b"x-scopekv-session", b"x-scopekv-org", b"x-session-id"),
    *(b"x-request-id", b"openai-organization", b"x-cache-salt", b"x-user-id"),
    *(b"x-tenant-id", b"x-forwarded-user", b"x-correlation-id", b"x-data-parallel-rank"),
)
CLAIM = b"victim"


@dataclass(frozen=True, slots=True)
class Attack:
    """Body fields and headers that the owner and the attackers set alike."""

    name: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    headers: tuple[bytes, ...] = ()

    @property
    def header_list(self) -> Headers:
        return [(name, CLAIM) for name in self.headers]


def attacks(*, quick: bool) -> list[Attack]:
    """One for each field and header; all headers at once if `quick`."""
    found = []
    for name in sorted(STRIPPED):
        value: Any = {"scopekv": "victim"} if name in OBJECTS else "victim"
        found.append(Attack(name, {name: 0 if name in NUMBERS else value}))
    if quick:
        return [*found, Attack("headers", headers=HEADERS)]
    return [*found, *(Attack(name.decode(), headers=(name,)) for name in HEADERS)]


async def stolen(
    forge: Forge, asking: Asking, victim: Caller, status: Mapping[str, Any]
) -> dict[str, Any]:
    """The victim's true salt, and a genuine ticket for the victim's own scope."""
    scope = await asking.act(lambda: forge.user_scope(*victim.seat))
    ticket = open_ticket(
        forge,
        scope.id(forge.scope_secret),
        bytes.fromhex(status["fingerprint"]),
        issued_ms=time.time_ns() // 1_000_000,
        nonce=secrets.token_bytes(16),
    )
    salt = scope.salt(forge.scope_secret, 0)
    return {"cache_salt": salt, "kv_transfer_params": {"scopekv": ticket}}


async def try_field(
    asking: Asking,
    attack: Attack,
    victim: Caller,
    attackers: Sequence[Caller],
    loot: Mapping[str, Any],
) -> list[Cell]:
    """The victim fills, attackers send the same words and the loot, the victim comes back."""
    await asking.alone(Place.ANY)
    prompt = Prompt(CHAT, asking.target.model, asking.texts.text(), asking.texts.tail())

    async def ask(caller: Caller, more: Mapping[str, Any]) -> Answer:
        return await asking.ask(
            caller,
            prompt,
            fields={**attack.fields, **more},
            headers=attack.header_list,
            watched=asking.many,
        )

    filled = await ask(victim, {})
    tries = [(attacker, await ask(attacker, loot)) for attacker in attackers]
    back = await ask(victim, {})
    beyond = asking.beyond[CHAT, asking.target.model]
    proved = back.outcome(beyond) is Outcome.HIT

    told = partial(asking.cell, group=f"fields.{attack.name}", owner=victim, proved=proved)

    def tried(caller: Caller, answer: Answer) -> Cell:
        cell = told(answer, caller=caller, allowed=False)
        apart = bool(answer.engines) and not answer.engines & filled.engines
        missed = cell.outcome is Outcome.MISS
        return replace(cell, outcome=Outcome.ELSEWHERE) if apart and missed else cell

    return [*(tried(*one) for one in tries), told(back, caller=victim, allowed=True)]


async def try_claim(asking: Asking, victim: Caller, stranger: Caller) -> list[Cell]:
    """Case I8: a stranger names the victim's organisation, whose members share instructions."""
    await asking.alone(Place.ANY)
    prompt = Prompt(
        CHAT, asking.target.model, asking.texts.text(), asking.texts.tail(), system=True
    )
    named = victim.member.org.encode()
    claims: Headers = [(name, named) for name in CLAIMS]
    await asking.ask(victim, prompt)
    tried = await asking.ask(stranger, prompt, headers=claims)
    back = await asking.ask(victim, prompt)
    proved = back.outcome(asking.beyond[CHAT, asking.target.model]) is Outcome.HIT
    cell = partial(asking.cell, group="fields.organisation_headers", owner=victim, proved=proved)
    return [cell(tried, caller=stranger, allowed=False), cell(back, caller=victim, allowed=True)]
