"""Planted faults of the engine's judgement and of the broker: what a bad ticket opens then."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import pytest

from scopekv.adapters.broker_client import BrokerClient, BrokerSettings
from scopekv.core.blocks import Fingerprint
from scopekv.core.tickets import SIGNATURE_BYTES, audience_id, mint
from scopekv.errors import Refused
from scopekv.simulate.stage import ENGINE_KEY, Stage, text_of
from scopekv.simulate.tickets import TicketMaker
from tests.audit.planted.registry import PLANTED
from tests.audit.planted.trial import Trial

pytestmark = pytest.mark.asyncio(loop_scope="module")
END = 64  # tokens under the first grant


@dataclass(frozen=True, slots=True)
class Thief:
    """Speaks to the engine itself, with tickets of any kind. `name`: its scopes are its own."""

    stage: Stage
    name: str

    @property
    def maker(self) -> TicketMaker:
        plugin = self.stage.engine.plugin
        assert plugin is not None
        return TicketMaker(self.stage.deployment.world, plugin.namespace.fingerprint())

    def ids(self, word: str) -> list[int]:
        return self.stage.model.text_ids(text_of(f"{self.name} {word}", 60))

    def good(self, ids: Sequence[int], *, private: str = "", **changes: Any) -> str:
        scopes = (f"{self.name} shared", f"{self.name} {private or 'private'}")
        return self.maker.text(ids, [END], scopes, **changes)

    async def send(self, ids: Sequence[int], ticket: str | None) -> int:
        """Cached tokens of one request with this ticket."""
        parameters = {"kv_transfer_params": {"scopekv": ticket}} if ticket else {}
        answer = await self.stage.client.send(
            "POST",
            "/v1/completions",
            {"model": self.stage.model.name, "prompt": ids, "cache_salt": self.name} | parameters,
            key=ENGINE_KEY,
        )
        return answer.cached

    async def after_a_good_one(self, bad: str, ids: Sequence[int]) -> bool:
        """Whether a bad ticket reads what good ones wrote and read."""
        await self.send(ids, self.good(ids))
        assert await self.send(ids, self.good(ids)) > 0
        return await self.send(ids, bad) > 0


async def unsigned(thief: Thief) -> bool:
    ids = thief.ids("a")
    ticket = thief.maker.ticket(ids, [END], (f"{thief.name} shared", f"{thief.name} private"))
    return await thief.after_a_good_one(mint(ticket, lambda _: bytes(SIGNATURE_BYTES)), ids)


async def expired(thief: Thief) -> bool:
    ids, issued = thief.ids("a"), time.time_ns() // 1_000_000 - 3_600_000
    return await thief.after_a_good_one(thief.good(ids, issued_ms=issued), ids)


async def other_text(thief: Thief) -> bool:
    """Tickets for one text, sent with another: its start is shared then."""
    granted, sent = thief.ids("a"), thief.ids("b")
    await thief.send(sent, thief.good(granted, private="one"))
    assert await thief.send(sent, thief.good(sent, private="two")) >= 0
    await thief.send(sent, thief.good(granted, private="three"))
    return await thief.send(sent, thief.good(granted, private="four")) >= END


async def used_twice(thief: Thief) -> bool:
    ids = thief.ids("a")
    ticket = thief.good(ids)
    await thief.send(ids, ticket)
    return await thief.send(ids, ticket) > 0


async def other_namespace(thief: Thief) -> bool:
    ids = thief.ids("a")
    return await thief.after_a_good_one(thief.good(ids, namespace=Fingerprint(bytes(32))), ids)


async def other_group(thief: Thief) -> bool:
    ids = thief.ids("a")
    return await thief.after_a_good_one(thief.good(ids, audience=audience_id("others")), ids)


async def from_before(thief: Thief) -> bool:
    """Tickets of an epoch that was revoked write and read again."""
    ids = thief.ids("a")
    plugin = thief.stage.engine.plugin
    assert plugin is not None
    grants = thief.maker.ticket(ids, [END], (f"{thief.name} shared", f"{thief.name} p")).grants
    plugin.fence([[grants[0].scope.hex(), 0]])
    await thief.send(ids, thief.good(ids))
    return await thief.send(ids, thief.good(ids)) > 0


async def without_any(thief: Thief) -> bool:
    ids = thief.ids("a")
    await thief.send(ids, None)
    return await thief.send(ids, None) > 0


BROKEN: dict[str, Callable[[Thief], Awaitable[bool]]] = {
    "signature_not_checked": unsigned,
    "expiry_not_checked": expired,
    "digest_not_checked": other_text,
    "uses_not_counted": used_twice,
    "namespace_not_checked": other_namespace,
    "group_not_checked": other_group,
    "fences_not_checked": from_before,
    "shares_without_ticket": without_any,
}


@pytest.fixture(scope="module")
def at_engine(stage: Stage) -> Stage:
    """The stage, its client turned to the engine."""
    stage.client = type(stage.client)(stage.engine.url, stage.model.name)
    return stage


@pytest.mark.parametrize("kind", BROKEN)
async def test_a_bad_ticket_opens_nothing_until_the_switch_is_on(
    at_engine: Stage, kind: str
) -> None:
    for switched in (False, True):
        thief = Thief(at_engine, f"{kind} {switched}")
        with PLANTED[kind].switch() if switched else nullcontext():
            assert await BROKEN[kind](thief) is switched


async def leased(stage: Stage, ticket: str) -> list[bytes]:
    """The keys that the broker gives for a ticket."""
    path = stage.deployment.world.instance_secret_path
    client = BrokerClient(BrokerSettings(stage.deployment.url, path))
    try:
        return [lease.key for lease in await asyncio.to_thread(client.lease, ticket)]
    except Refused:
        return []
    finally:
        client.close()


async def test_a_wide_lease_holds_keys_of_others(tiers: Stage) -> None:
    trial = Trial(tiers, "wide")
    for org in ("acme", "globex"):
        await trial.ask(trial.account(org), trial.text())
    ticket = tiers.engine.seen.calls[-1].ticket
    assert ticket is not None
    assert len(await leased(tiers, ticket)) == 1
    with PLANTED["lease_too_wide"].switch():
        assert len(await leased(tiers, ticket)) > 1


async def test_a_forged_ticket_gets_keys(tiers: Stage) -> None:
    trial = Trial(tiers, "forged")
    await trial.ask(trial.account("acme"), trial.text())
    good = tiers.engine.seen.calls[-1].ticket
    assert good is not None
    forged = good[:-80] + "A" * 79 + good[-1]
    assert not await leased(tiers, forged)
    with PLANTED["lease_for_forged_ticket"].switch():
        assert len(await leased(tiers, forged)) == 1


async def test_one_key_opens_every_scope(tiers: Stage) -> None:
    for switched in (False, True):
        trial, keys = Trial(tiers, f"one-{switched}"), set[bytes]()
        with PLANTED["one_key_for_all"].switch() if switched else nullcontext():
            for org in ("acme", "globex"):
                await trial.ask(trial.account(org), trial.text())
                ticket = tiers.engine.seen.calls[-1].ticket
                assert ticket is not None
                keys.update(await leased(tiers, ticket))
        assert len(keys) == (1 if switched else 2)
