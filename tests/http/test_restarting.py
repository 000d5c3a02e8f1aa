"""Engines are restarted by an operator, where the gateway's own process runs them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from scopekv.gateway.instances import InstanceAddress
from scopekv.simulate.client import PlainClient
from scopekv.simulate.model import SimulatedModel
from scopekv.simulate.stage import Stage

pytestmark = pytest.mark.slow


async def test_an_engine_of_others_is_not_restarted(tmp_path: Path, model: SimulatedModel) -> None:
    async with Stage(tmp_path, model) as stage:
        root = stage.deployment.account("hq", "root", roles=["operator"])
        path = "/admin/v1/instances"
        refused = await stage.client.send("POST", f"{path}/engine-0/restart", key=root)
        assert refused.status == 400
        assert "where they run" in refused.error["message"]
        assert not (await stage.client.send("GET", path, key=root)).json["restartable"]


async def test_an_instance_is_restarted_where_the_gateway_runs_it(
    tmp_path: Path, model: SimulatedModel
) -> None:
    ended: list[str] = []
    stage = Stage(tmp_path, model)
    root = stage.deployment.account("hq", "root", roles=["operator"])
    key = stage.deployment.account("acme", "alice")
    path = "/admin/v1/instances"

    async def restart(name: str) -> None:
        ended.append(name)
        await stage.engine.restart()

    async with stage.engine:
        await stage.deployment.start(
            [InstanceAddress("engine-0", stage.engine.url, stage.engine.api_key)], restart=restart
        )
        client = PlainClient(stage.deployment.url, model.name)
        assert (await client.send("GET", path, key=root)).json["restartable"]
        assert (await client.send("POST", f"{path}/engine-0/restart", key=key)).status == 403
        assert (await client.send("POST", f"{path}/nobody/restart", key=root)).status == 404
        assert ended == []
        told = await client.send("POST", f"{path}/engine-0/restart", key=root)
        assert (told.status, told.json["state"], ended) == (200, "down", ["engine-0"])
        while not stage.deployment.gateway.fleet.instances[0].up:
            await asyncio.sleep(0.02)
        assert (await client.chat(key, "hi")).status == 200
        await client.close()
        await stage.deployment.stop()
