"""Revocation while instances or gateways are away, dead, new, gone, or without the plugin (L6)."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from scopekv.gateway.administration import LOCAL_OPERATOR as _LOCAL
from scopekv.gateway.fleet import Fleet
from scopekv.gateway.instances import InstanceAddress, Isolation
from scopekv.ports import ReceiptLine
from scopekv.simulate.client import Answer, PlainClient
from scopekv.simulate.deployment import Deployment
from scopekv.simulate.model import SimulatedModel
from scopekv.simulate.stage import Stage, text_of

pytestmark = pytest.mark.slow


async def revoke(stage: Stage, key: str, kind: str, **body: Any) -> Answer:
    path = f"/admin/v1/revocations/{kind}"
    return await stage.client.send("POST", path, {"wait_seconds": 30} | body, key=key)


async def receipt(stage: Stage, key: str, uid: str) -> Any:
    return (await stage.client.send("GET", f"/admin/v1/receipts/{uid}", key=key)).json


async def until(stage: Stage, key: str, uid: str, state: str) -> Any:
    async with asyncio.timeout(60):
        while (shown := await receipt(stage, key, uid))["state"] != state:
            await asyncio.sleep(0.02)
    return shown


async def looked_at(fleet: Fleet, number: int) -> Isolation:
    await fleet.look(fleet.instances[number])
    return fleet.instances[number].isolation


async def test_an_engine_without_the_plugin_cannot_confirm(
    tmp_path: Path, model: SimulatedModel
) -> None:
    async with Stage(tmp_path, model, plugins=(True, False)) as stage:
        alice = stage.deployment.account("acme", "alice")
        root = stage.deployment.account("hq", "root", roles=["operator"])
        began = time.monotonic()
        answer = await revoke(stage, root, "users", org="acme", name="alice", wait_seconds=60)
        assert time.monotonic() - began < 55, "nobody waits for what asking does not change"
        assert answer.status == 202
        lines = {one["instance"]: one["reason"] for one in answer.json["receipt"]["lines"]}
        assert lines == {"engine-0": "", "engine-1": "no_plugin"}
        assert "without the plugin" in answer.json["receipt"]["advice"][0]
        await stage.engine.stop()
        await stage.look()
        prompt = text_of("salted", 60)
        assert [(await stage.client.chat(alice, prompt)).cached > 0 for _ in range(2)] == [
            False,
            True,
        ]
        await revoke(stage, root, "users", org="acme", name="alice", wait_seconds=0)
        assert (await stage.client.chat(alice, prompt)).cached == 0, "another salt"


async def test_an_instance_that_returns_is_fenced_before_it_gets_requests(
    tmp_path: Path, model: SimulatedModel
) -> None:
    async with Stage(tmp_path, model, plugins=(True, True)) as stage:
        stage.deployment.account("acme", "alice")
        root = stage.deployment.account("hq", "root", roles=["operator"])
        fleet = stage.deployment.gateway.fleet
        away = stage.engines[1]
        await away.stop()
        assert await looked_at(fleet, 1) is Isolation.NONE
        body = {"org": "acme", "name": "alice", "wait_seconds": 1}
        answer = await revoke(stage, root, "users", **body)
        uid = answer.json["receipt"]["id"]
        async with asyncio.timeout(60):
            while True:
                shown = await receipt(stage, root, uid)
                if {one["instance"]: one["reason"] for one in shown["lines"]} == {
                    "engine-0": "",
                    "engine-1": "unreachable",
                }:
                    break
                await asyncio.sleep(0.02)
        stage.deployment.gateway.revoker.calls.seconds = 0.1
        away.behaviour.purge_seconds = 60
        await away.start()
        assert await looked_at(fleet, 1) is Isolation.NONE, "it answers, but is not purged"
        away.behaviour.purge_seconds = 0
        assert await looked_at(fleet, 1) is Isolation.SCOPED
        assert away.plugin is not None
        assert len(away.plugin.fences) > 0
        await until(stage, root, uid, "done")


async def test_what_a_gateway_left_behind_is_found_at_start(
    tmp_path: Path, model: SimulatedModel
) -> None:
    """The registry has the receipt; the gateway that wrote it is gone."""
    stage = Stage(tmp_path, model, plugins=(True, True))
    stage.deployment.account("acme", "alice")
    root = stage.deployment.account("hq", "root", roles=["operator"])
    administration = stage.deployment.administration
    made = administration.revocations.user(_LOCAL, "acme", "alice").receipt
    assert made.state == "pending"
    async with stage:
        await until(stage, root, made.id, "done")
        assert all(engine.seen.purges for engine in stage.engines)


async def test_two_gateways_work_on_one_receipt(tmp_path: Path, model: SimulatedModel) -> None:
    stage = Stage(tmp_path, model, plugins=(True, True))
    root = stage.deployment.account("hq", "root", roles=["operator"])
    async with stage:
        other = Deployment(tmp_path)
        await other.start(
            [
                InstanceAddress(f"engine-{number}", engine.url, engine.api_key)
                for number, engine in enumerate(stage.engines)
            ]
        )
        try:
            for _ in range(10):
                answer = await revoke(stage, root, "users", org="hq", name="root")
                assert answer.status == 200, answer.content
        finally:
            await other.stop()


async def test_an_instance_that_left_the_configuration_is_gone_not_done(
    tmp_path: Path, model: SimulatedModel
) -> None:
    stage = Stage(tmp_path, model)
    stage.deployment.account("acme", "alice")
    root = stage.deployment.account("hq", "root", roles=["operator"])
    made = stage.deployment.administration.revocations.user(_LOCAL, "acme", "alice").receipt
    with stage.deployment.world.registry.write() as tx:
        tx.receipts.update(made.id, "pending", [ReceiptLine("old", "engine", "busy", 0, "", 1.0)])
    async with stage:
        shown = await until(stage, root, made.id, "incomplete")
        lines = {(one["instance"], one["reason"]) for one in shown["lines"]}
        assert lines == {("old", "gone"), ("engine-0", "")}


async def test_an_instance_address_may_be_dead_from_the_start(
    tmp_path: Path, model: SimulatedModel
) -> None:
    stage = Stage(tmp_path, model)
    root = stage.deployment.account("hq", "root", roles=["operator"])
    await stage.engine.start()
    dead = InstanceAddress("dead", "http://127.0.0.1:9", "")
    live = InstanceAddress("live", stage.engine.url, stage.engine.api_key)
    await stage.deployment.start([live, dead])
    try:
        made = stage.deployment.administration.revocations.user(_LOCAL, "hq", "root").receipt
        stage.client = PlainClient(stage.deployment.url, model.name)

        async def reasons(wanted: set[tuple[str, str]]) -> None:
            lines: set[tuple[str, str]] = set()
            for _ in range(100):  # each instance's line comes in its own time
                shown = await until(stage, root, made.id, "incomplete")
                lines = {(one["instance"], one["reason"]) for one in shown["lines"]}
                if lines == wanted:
                    return
                await asyncio.sleep(0.05)
            assert lines == wanted

        await reasons({("live", ""), ("dead", "unreachable")})
        await stage.deployment.gateway.fleet.reconcile([live])
        await reasons({("live", ""), ("dead", "gone")})
        await stage.deployment.gateway.fleet.reconcile([live, dead])
        await reasons({("live", ""), ("dead", "unreachable")})
    finally:
        await stage.client.close()
        await stage.deployment.stop()
        await stage.engine.stop()
