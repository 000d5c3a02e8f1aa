"""Each planted fault does what it says: seen through the gateway, and not without the switch."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Awaitable, Callable
from contextlib import nullcontext

import pytest

from scopekv.core.chains import Link, tag, tags_of
from scopekv.core.scopes import Scope, ScopeKind
from scopekv.gateway.administration import LOCAL_OPERATOR
from scopekv.gateway.tokens import common
from scopekv.simulate.model import SimulatedModel
from scopekv.simulate.stage import Stage
from tests.audit.planted import telling
from tests.audit.planted.registry import PLANTED
from tests.audit.planted.switch import patched
from tests.audit.planted.trial import Trial
from tests.audit.planted.world import tiered

pytestmark = pytest.mark.asyncio(loop_scope="module")
Broken = Callable[[Trial], Awaitable[bool]]  # whether the fault shows


async def others_text(trial: Trial) -> bool:
    return await trial.crosses(trial.account("acme"), trial.account("globex"))


async def colleagues_text(trial: Trial) -> bool:
    return await trial.crosses(trial.account("acme"), trial.account("acme"))


async def text_before_revocation(trial: Trial) -> bool:
    alice, text = trial.account("acme"), trial.text()
    await trial.ask(alice, text)
    assert await trial.ask(alice, text) > 0
    body = {"org": trial.org("acme"), "name": trial.names[alice]}
    await trial.admin("/admin/v1/revocations/users", body)
    return await trial.ask(alice, text) > 0


async def end_user_of_others(trial: Trial) -> bool:
    ours, theirs = (trial.account(org, service=True) for org in ("acme", "globex"))
    return await trial.crosses(ours, theirs, user=trial.name("eve"))


async def other_session(trial: Trial) -> bool:
    alice, text = trial.account("acme"), trial.text()
    one, two = ([(b"x-scopekv-session", trial.name(s).encode())] for s in "ab")
    await trial.ask(alice, text, headers=one)
    assert await trial.ask(alice, text, headers=one) > 0
    return await trial.ask(alice, text, headers=two) > 0


async def other_end_user(trial: Trial) -> bool:
    desk, text = trial.account("acme", service=True), trial.text()
    await trial.ask(desk, text, user="eve")
    assert await trial.ask(desk, text, user="eve") > 0
    return await trial.ask(desk, text, user="adam") > 0


async def token_over_the_border(trial: Trial) -> bool:
    """A document whose last token grows with what follows, and then ends a block."""
    alice, bob, model = trial.account("acme"), trial.account("globex"), trial.stage.model

    def ids(text: str) -> list[int]:
        return model.chat_ids({"messages": [{"role": "user", "content": text}]})

    def grown(text: str) -> str:
        return text + "ation is a matter of trust."

    def same(text: str) -> int:
        return common(ids(text), ids(grown(text)))

    block_size = trial.stage.engine.cache.block_size
    texts = (trial.text(words) + " transport" for words in itertools.count(20))
    document = next(text for text in texts if (same(text) + 1) % block_size == 0)
    trial.publish("public", document)
    await trial.stage.deployment.gateway.warmer.settle()
    await trial.ask(alice, grown(document))
    return await trial.ask(bob, grown(document)) > same(document)


async def folder_that_names_a_user(trial: Trial) -> bool:
    alice = trial.account("acme")
    await trial.ask(alice, trial.text())
    with trial.stage.deployment.world.registry.read() as view:
        org = view.orgs.get(trial.org("acme"))
        account = view.accounts.get(org.uid, trial.names[alice]) if org else None
    assert org is not None
    assert account is not None
    guess = Scope(ScopeKind.USER, (org.uid, account.principal.uid)).id(bytes(32))
    await trial.stored()
    return any(tag(Link(guess, 0)) in tags_of(chain) for chain in trial.chains())


async def document_of_others(trial: Trial) -> bool:
    alice, bob, document = trial.account("acme"), trial.account("globex"), trial.text()
    trial.publish(f"org:{trial.org('acme')}", document)
    return await trial.crosses(alice, bob, text=document)


async def document_of_a_group(trial: Trial) -> bool:
    alice, ann = trial.account("acme"), trial.account("acme")
    group, document = trial.group(alice), trial.text()
    trial.publish(f"group:{trial.org('acme')}/{group}", document)
    return await trial.crosses(alice, ann, text=document)


async def former_member(trial: Trial) -> bool:
    alice, ann = trial.account("acme"), trial.account("acme")
    group, document = trial.group(alice, ann), trial.text()
    trial.publish(f"group:{trial.org('acme')}/{group}", document)
    await trial.ask(alice, document)
    assert await trial.ask(ann, document) > 0
    trial.stage.deployment.administration.groups.set_member(
        LOCAL_OPERATOR, trial.org("acme"), group, trial.names[ann], inside=False
    )
    return await trial.crosses(alice, ann, text=document)


async def withdrawn_document(trial: Trial) -> bool:
    alice, ann, document = trial.account("acme"), trial.account("acme"), trial.text()
    trial.publish(f"org:{trial.org('acme')}", document)
    await trial.ask(alice, document)
    trial.withdraw()
    return await trial.crosses(alice, ann, text=document)


async def claimed_org(trial: Trial) -> bool:
    alice, bob, text = trial.account("acme"), trial.account("globex"), trial.text()
    await trial.ask(alice, text, "a question")
    header = [(b"x-scopekv-org", trial.org("acme").encode())]
    return await trial.ask(bob, text, "another question", headers=header) > 0


async def first_reader(trial: Trial) -> bool:
    document = trial.text(120)
    trial.publish("public", document)
    await trial.stage.deployment.gateway.warmer.settle()
    return await trial.ask(trial.account("acme"), document) == 0


async def denied_sooner(trial: Trial) -> bool:
    """What it would wait, instead of a measured time."""
    trial.account("acme")
    bob, document, waits = trial.account("globex"), trial.text(), list[float]()
    trial.publish(f"org:{trial.org('acme')}", document)

    async def pause(seconds: float) -> None:
        waits.append(seconds)

    with patched(telling, pause=pause):
        await trial.ask(bob, document)
        after_denied = len(waits)
        await trial.ask(bob, trial.text())
    return (after_denied, len(waits)) == (0, 1)


async def ticket_in_log(trial: Trial) -> bool:
    lines: list[str] = []
    handler, log = logging.Handler(), logging.getLogger("scopekv")
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.DEBUG)
    before = len(trial.stage.engine.seen.calls)
    try:
        await trial.ask(trial.account("acme"), trial.text())
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
    tickets = [str(call.ticket) for call in trial.stage.engine.seen.calls[before:]]
    return any(ticket in line for ticket in tickets for line in lines)


async def org_in_metrics(trial: Trial) -> bool:
    await trial.ask(trial.account("acme"), trial.text())
    answer = await trial.stage.client.send("GET", "/metrics", key=trial.operator)
    assert answer.status == 200
    return trial.org("acme").encode() in answer.content


async def names_in_events(trial: Trial) -> bool:
    seen: list[bytes] = []
    plugin = trial.stage.engine.plugin
    assert plugin is not None
    plugin.bus.deliver.append(lambda _, payload: seen.append(payload))
    try:
        desk = trial.account("acme", service=True)
        await trial.ask(desk, trial.text(), user="eve-of-acme")
    finally:
        plugin.bus.deliver.clear()
    assert seen
    return b"eve-of-acme" in b"".join(seen)


BROKEN: dict[str, Broken] = {
    "scope_left_out_of_hash": others_text,
    "epoch_ignored": text_before_revocation,
    "end_users_without_org": end_user_of_others,
    "session_ignored": other_session,
    "end_user_ignored": other_end_user,
    "messages_shared_in_org": colleagues_text,
    "straddling_token_public": token_over_the_border,
    "scope_names_unkeyed": folder_that_names_a_user,
    "audience_ignored": document_of_others,
    "membership_ignored": document_of_a_group,
    "membership_kept": former_member,
    "withdrawn_shared": withdrawn_document,
    "claimed_org_believed": claimed_org,
    "public_not_warm": first_reader,
    "denied_faster_than_miss": denied_sooner,
    "host_tier_by_tokens_alone": others_text,
    "log_with_ticket": ticket_in_log,
    "metric_with_org": org_in_metrics,
    "events_with_raw_salts": names_in_events,
}


@pytest.mark.parametrize("kind", BROKEN)
async def test_a_switch_breaks_what_it_says_and_nothing_shows_without_it(
    tiers: Stage, kind: str
) -> None:
    for switched in (False, True):
        trial = Trial(tiers, f"{kind}-{switched}")
        with PLANTED[kind].switch() if switched else nullcontext():
            assert await BROKEN[kind](trial) is switched


async def test_a_salt_passed_through_opens_an_engine_without_the_plugin(
    tmp_path_factory: pytest.TempPathFactory, model: SimulatedModel
) -> None:
    kind = "salt_passed_through"
    assert not PLANTED[kind].plugin
    async with tiered(tmp_path_factory.mktemp("stock"), model, plugin=False) as stage:
        for switched in (False, True):
            trial = Trial(stage, f"{kind}-{switched}")
            alice, bob, text = trial.account("acme"), trial.account("globex"), trial.text()
            with PLANTED[kind].switch() if switched else nullcontext():
                await trial.ask(alice, text, cache_salt="mine")
                assert await trial.ask(alice, text, cache_salt="mine") > 0
                assert (await trial.ask(bob, text, cache_salt="mine") > 0) is switched
