"""Nothing secret is logged, whatever happens: no key, ticket, salt, prompt text or token id."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from scopekv.simulate.behaviour import Behaviour
from scopekv.simulate.client import CHAT, COMPLETIONS
from scopekv.simulate.model import SimulatedModel
from scopekv.simulate.stage import ENGINE_KEY, Stage, text_of


async def every_kind_of_request(stage: Stage, key: str, secret: str) -> None:
    """Good ones, refused ones, broken ones, administration."""
    send = stage.client.send
    for behaviour in (
        Behaviour(),
        Behaviour(refuses=400, echoes_body=True),
        Behaviour(refuses=500, echoes_body=True),
        Behaviour(dies_after_events=0),
        Behaviour(dies_after_events=1),
    ):
        stage.engine.behaviour = behaviour
        for stream in (False, True):
            await stage.client.chat(key, secret, secret, stream=stream)
            await stage.client.complete(key, secret, stream=stream)
    stage.engine.behaviour = Behaviour()
    await send("POST", CHAT, b'{"messages": "' + secret.encode(), key=key)
    await send("POST", CHAT, {"model": secret, "messages": []}, key=key)
    await send("POST", COMPLETIONS, {"model": stage.model.name, "prompt": [secret]}, key=key)
    await send("POST", CHAT, b"x" * (17 << 20), key=key)
    await send("GET", f"/v1/{key}", key=key)
    await send("POST", CHAT, {}, key=key + "x")
    body = {"name": "d", "audience": "org:acme", "text": secret}
    await send("POST", "/admin/v1/documents", body, key=key)
    await send("POST", "/admin/v1/orgs/acme/keys", {"owner": "alice"}, key=key)


async def test_nothing_secret_is_logged_at_debug(
    tmp_path: Path, model: SimulatedModel, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage(tmp_path, model)
    key = stage.deployment.account("acme", "alice", roles=["org_admin"])
    secret = text_of("privat", 40)
    stage.deployment.publish("public", "public", text_of("pub", 60))
    with caplog.at_level(logging.DEBUG), caplog.at_level(logging.DEBUG, "scopekv"):
        async with stage:
            await every_kind_of_request(stage, key, secret)
            await stage.engine.stop()
            await stage.client.chat(key, secret)
            await stage.engine.start()
            await stage.look()
    assert caplog.records, "something must have been logged, or this test sees nothing"
    logged = "\n".join(
        f"{record.getMessage()} {record.exc_text or ''} {record.exc_info or ''}"
        for record in caplog.records
    )
    calls = stage.engine.seen.calls
    ids = model.text_ids(secret)
    hidden = {key, ENGINE_KEY, secret, secret[:30], ", ".join(map(str, ids[3:8]))}
    hidden |= {",".join(map(str, ids[3:8])), "sk-scopekv-"}
    hidden |= {call.salt for call in calls} | {call.ticket for call in calls if call.ticket}
    assert len(hidden) > 10
    assert [what[:12] for what in sorted(hidden) if what in logged] == []


async def test_no_answer_and_no_repr_holds_a_secret(tmp_path: Path, model: SimulatedModel) -> None:
    stage = Stage(tmp_path, model)
    key = stage.deployment.account("acme", "alice")
    async with stage:
        answers = [
            await stage.client.chat(key, text_of("q", 20), stream=stream)
            for stream in (False, True)
        ]
        calls = stage.engine.seen.calls
        shown = b"".join(answer.content + str(answer.headers).encode() for answer in answers)
        for call in calls:
            for secret in (call.salt, call.ticket or "?", ENGINE_KEY, key):
                assert secret.encode() not in shown
        gateway = stage.deployment.gateway
        things = [stage.deployment.world, *gateway.fleet.instances, gateway, stage]
        for thing in things:
            assert ENGINE_KEY not in repr(thing)
            assert stage.deployment.world.scope_secret.hex() not in repr(thing)
