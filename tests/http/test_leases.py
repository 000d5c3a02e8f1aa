"""The key broker over HTTP: engines with the instance secret get keys, against genuine tickets."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from scopekv.adapters.broker_client import BrokerClient, BrokerSettings
from scopekv.core.leases import Lease
from scopekv.core.scopes import ScopeKind
from scopekv.core.tickets import verify_for_broker
from scopekv.errors import TicketInvalid, Unauthenticated
from scopekv.gateway.administration import LOCAL_OPERATOR
from scopekv.ports import LEASES_PATH
from scopekv.simulate.client import CHAT, Answer
from scopekv.simulate.model import SimulatedModel
from scopekv.simulate.stage import Stage, text_of

pytestmark = pytest.mark.asyncio(loop_scope="module")
Keys = dict[str, str]


def ticket_of(stage: Stage) -> str:
    """Of the last chat: documents are warmed by completions in the background."""
    chats = [call for call in stage.engine.seen.calls if call.path == CHAT]
    ticket = chats[-1].ticket
    assert ticket is not None
    return ticket


async def lease(stage: Stage, ticket: str) -> Sequence[Lease]:
    """As an engine asks."""
    path = stage.deployment.world.instance_secret_path
    client = BrokerClient(BrokerSettings(stage.deployment.url, path))
    try:
        return await asyncio.to_thread(client.lease, ticket)
    finally:
        client.close()


async def post(stage: Stage, body: object, key: str | None, **more: Any) -> Answer:
    return await stage.client.send("POST", LEASES_PATH, body, key=key, **more)


def links(stage: Stage, ticket: str) -> set[tuple[bytes, int]]:
    world = stage.deployment.world
    read = verify_for_broker(
        ticket,
        keys=world.ticket_checks,
        now_ms=int(time.time() * 1000),
        audience=stage.deployment.gateway.broker._authority.audience,
    )
    return {(grant.scope, grant.epoch) for grant in read.grants}


async def test_each_scope_of_a_ticket_has_a_lease_before_the_engine_sees_it(
    stage: Stage, keys: Keys
) -> None:
    text = text_of("leased", 60)
    stage.deployment.publish("leased", "org:acme", text)
    await stage.client.chat(keys["alice"], text, "q", headers=[(b"x-scopekv-session", b"one")])
    ticket = ticket_of(stage)
    leases = await lease(stage, ticket)
    assert {(one.scope, one.epoch) for one in leases} == links(stage, ticket)
    assert {one.retention_seconds for one in leases} >= {7 * 86_400, 4 * 3_600}
    assert all(one.lease_seconds == 300 for one in leases)
    again = await lease(stage, ticket)
    assert again == leases


async def test_t10_leases_of_one_caller_open_nothing_of_another(stage: Stage, keys: Keys) -> None:
    text = text_of("both", 60)
    stage.deployment.publish("both", "public", text)
    found = {}
    for name in ("alice", "bob"):
        await stage.client.chat(keys[name], text, "private question")
        found[name] = {one.scope: one for one in await lease(stage, ticket_of(stage))}
    shared = found["alice"].keys() & found["bob"].keys()
    assert len(shared) == 1, "the document's"
    for scope in shared:
        assert found["alice"][scope].key == found["bob"][scope].key
        assert found["alice"][scope].account == bytes(16)
    own = [found[name][scope] for name in found for scope in found[name].keys() - shared]
    assert len({one.key for one in own}) == len(own)
    assert len({one.account for one in own}) == 2


async def test_only_the_instance_secret_opens_it(stage: Stage, keys: Keys) -> None:
    await stage.client.chat(keys["alice"], "hi")
    ticket, secret = ticket_of(stage), stage.deployment.world.instance_secret
    doubled = [(b"authorization", f"Bearer {secret}".encode())]
    for key, more in (
        (None, None),
        (keys["root"], None),
        (keys["alice"], None),
        (secret[:-1], None),
        (secret + "0", None),
        (secret.upper(), None),
        (secret, doubled),
    ):
        answer = await post(stage, {"ticket": ticket}, key, headers=more)
        assert answer.status == 401
        assert secret.encode() not in answer.content
    assert (await post(stage, {"ticket": ticket}, secret)).status == 200
    for path in ("/v1/models", "/metrics", "/admin/v1/orgs"):
        assert (await stage.client.send("GET", path, key=secret)).status == 401
    assert (await stage.client.send("GET", LEASES_PATH, key=secret)).status == 400


async def test_a_ticket_that_does_not_hold_is_refused_by_its_reason_alone(
    stage: Stage, keys: Keys
) -> None:
    await stage.client.chat(keys["alice"], "hi")
    secret, ticket = stage.deployment.world.instance_secret, ticket_of(stage)
    answer = await post(stage, {"ticket": ticket[:-8]}, secret)
    assert (answer.status, answer.error["code"]) == (403, "malformed")
    assert ticket[:20].encode() not in answer.content
    with pytest.raises(TicketInvalid, match="malformed"):
        await lease(stage, "x")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"\xff", 400),
        ([], 400),
        ({"ticket": 5}, 400),
        ({"ticket": "x", "scope": "y"}, 400),
        ({"other": "x"}, 400),
        ({"ticket": "x" * 20_000}, 413),
        ({"ticket": "é"}, 403),
    ],
)
async def test_a_body_that_is_no_question_is_refused(
    stage: Stage, keys: Keys, body: object, status: int
) -> None:
    assert (await post(stage, body, stage.deployment.world.instance_secret)).status == status


async def test_another_secret_is_refused_at_the_engine(
    stage: Stage, keys: Keys, tmp_path: Path
) -> None:
    path = tmp_path / "instance.key"
    path.write_text("00" * 32)
    path.chmod(0o600)
    client = BrokerClient(BrokerSettings(stage.deployment.url, path))
    with pytest.raises(Unauthenticated):
        await asyncio.to_thread(client.lease, "ticket")
    client.close()


async def test_a_scope_is_written_once_and_its_later_requests_write_nothing(
    stage: Stage, keys: Keys
) -> None:
    written: list[str] = []

    def statement(_c: Any, _cursor: Any, text: str, values: Any, *_: Any) -> None:
        # Of sessions alone: documents are warmed, and so noted, in the background.
        ours = "scopekv_scope_keys" in text and not text.startswith("SELECT")
        if ours and "session" in repr(values):
            written.append(text.split()[0])

    registry: Any = stage.deployment.world.registry
    event.listen(registry.database.engine, "before_cursor_execute", statement)
    try:
        headers = [(b"x-scopekv-session", b"counted")]
        for _ in range(4):
            await stage.client.chat(keys["ann"], text_of("c", 20), headers=headers)
        assert written == ["INSERT"]
        before = len(written)
        asked = [
            stage.client.chat(
                keys["ann"], "hi", headers=[(b"x-scopekv-session", f"many {n % 5}".encode())]
            )
            for n in range(20)
        ]
        assert {answer.status for answer in await asyncio.gather(*asked)} == {200}
        assert written[before:] == ["INSERT"] * 5
    finally:
        event.remove(registry.database.engine, "before_cursor_execute", statement)


async def test_a_raised_epoch_ends_the_leases_of_tickets_under_way(
    stage: Stage, keys: Keys
) -> None:
    await stage.client.chat(keys["bob"], "hi")
    ticket = ticket_of(stage)
    before = await lease(stage, ticket)
    stage.deployment.administration.epochs.bump(LOCAL_OPERATOR, "user:globex/bob")
    after = await lease(stage, ticket)
    assert len(after) == len(before) - 1
    await stage.client.chat(keys["bob"], "hi")
    assert len(await lease(stage, ticket_of(stage))) == len(before)


async def test_without_the_root_key_requests_go_on_and_no_lease_is_given(
    stage: Stage, keys: Keys
) -> None:
    path = stage.deployment.world.instance_secret_path.with_name("wrap.key")
    secret, aside = stage.deployment.world.instance_secret, path.with_name("aside")
    await stage.client.chat(keys["alice"], "hi")  # so that her scope has a key
    os.rename(path, aside)
    try:
        headers = [(b"x-scopekv-session", b"keyless")]
        answer = await stage.client.chat(keys["alice"], text_of("k", 20), headers=headers)
        assert answer.status == 200
        with stage.deployment.world.registry.read() as view:
            kinds = {kind for kind, _ in view.scope_keys.counts()}
        assert ScopeKind.USER in kinds or ScopeKind.SESSION in kinds
        stage.deployment.gateway.broker._kept.clear()
        await stage.client.chat(keys["alice"], "hi")
        answer = await post(stage, {"ticket": ticket_of(stage)}, secret)
        assert answer.status == 503
    finally:
        os.rename(aside, path)
    assert (await post(stage, {"ticket": ticket_of(stage)}, secret)).status == 200


async def test_without_the_registry_there_is_no_lease(
    tmp_path: Path, model: SimulatedModel
) -> None:
    stage = Stage(tmp_path, model)
    key = stage.deployment.account("acme", "alice")
    async with stage:
        await stage.client.chat(key, "hi")
        ticket, secret = ticket_of(stage), stage.deployment.world.instance_secret
        assert (await post(stage, {"ticket": ticket}, secret)).status == 200
        os.rename(stage.deployment.registry_file, tmp_path / "aside.db")
        answer = await post(stage, {"ticket": ticket}, secret)
        assert answer.status == 503
        assert b"registry.db" not in answer.content


async def test_nothing_of_a_lease_is_logged(
    stage: Stage, keys: Keys, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG), caplog.at_level(logging.DEBUG, "scopekv"):
        await stage.client.chat(keys["alice"], text_of("logged", 20))
        leases = await lease(stage, ticket_of(stage))
        await post(stage, {"ticket": "bad"}, stage.deployment.world.instance_secret)
    logged = "\n".join(record.getMessage() for record in caplog.records)
    assert leases
    hidden = [stage.deployment.world.instance_secret, ticket_of(stage)]
    hidden += [form for one in leases for form in (one.key.hex(), one.scope.hex())]
    assert [what[:8] for what in hidden if what in logged] == []
    assert stage.deployment.world.instance_secret not in repr(stage.deployment.world)
