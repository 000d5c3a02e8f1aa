"""Instances that come, go and rest while requests are under way."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from scopekv.cli.admin.instances import instance
from scopekv.errors import ConfigError
from scopekv.gateway.http import ClientLimits, ClientPool
from scopekv.gateway.instances import InstanceAddress
from scopekv.simulate.behaviour import Behaviour
from scopekv.simulate.client import Answer
from scopekv.simulate.model import SimulatedModel
from scopekv.simulate.stage import Stage, until

pytestmark = pytest.mark.slow


def behave(stage: Stage, **changes: Any) -> None:
    for engine in stage.engines:
        engine.behaviour = Behaviour(**changes)


def calls(stage: Stage) -> list[int]:
    return [len(engine.seen.calls) for engine in stage.engines]


def addresses(stage: Stage, *numbers: int) -> list[InstanceAddress]:
    return [
        InstanceAddress(f"engine-{n}", stage.engines[n].url, stage.engines[n].api_key)
        for n in numbers
    ]


async def test_a_drained_instance_ends_what_it_has_and_gets_nothing_new(
    tmp_path: Path, model: SimulatedModel
) -> None:
    async with Stage(tmp_path, model, plugins=(True, True)) as stage:
        root = stage.deployment.account("hq", "root", roles=["operator"])
        key = stage.deployment.account("acme", "alice")
        path = "/admin/v1/instances"

        async def ask(method: str, rest: str = "", by: str = root) -> Answer:
            return await stage.client.send(method, path + rest, key=by)

        behave(stage, held=True)
        running = [asyncio.create_task(stage.client.chat(key, f"q{n}")) for n in range(4)]
        await until(lambda: sum(engine.seen.running for engine in stage.engines) == 4)
        assert (await ask("POST", "/engine-0/drain")).json["state"] == "draining"
        before = calls(stage)[0]
        behave(stage)
        assert {answer.status for answer in await asyncio.gather(*running)} == {200}
        for number in range(4):
            assert (await stage.client.chat(key, f"new {number}")).status == 200
        assert calls(stage)[0] == before
        rows = (await ask("GET")).json["data"]
        assert [row["state"] for row in rows] == ["drained", "in_use"]
        assert [row["waiting"] + row["decoding"] for row in rows] == [0, 0]
        assert (await ask("POST", "/engine-1/drain")).status == 200
        assert (await stage.client.chat(key, "hi")).status == 503
        assert (await ask("POST", "/engine-0/resume")).json["state"] == "in_use"
        assert (await stage.client.chat(key, "hi")).status == 200
        assert [
            (await ask("GET", by=key)).status,
            (await ask("GET", "/engine-0/drain")).status,
        ] == [
            403,
            400,
        ]
        assert (await ask("POST", "/engine-0/drain", by=key)).status == 403
        assert (await ask("POST", "/nobody/drain")).status == 404
        audit = await stage.client.send("GET", "/admin/v1/audit?limit=1000", key=root)
        acts = [
            (row["actor"], row["action"], row["outcome"])
            for row in audit.json["data"]
            if row["action"].startswith("instance_")
        ]
        assert ("hq/root", "instance_drain", "allowed") in acts
        assert ("acme/alice", "instance_drain", "denied") in acts


async def test_instances_come_and_go_without_an_error(
    tmp_path: Path, model: SimulatedModel
) -> None:
    async with Stage(tmp_path, model, plugins=(True, True)) as stage:
        key = stage.deployment.account("acme", "alice")
        gateway = stage.deployment.gateway
        fleet = gateway.fleet
        behave(stage, held=True)
        kept = fleet.instances[1]
        running = [asyncio.create_task(stage.client.chat(key, f"q{n}")) for n in range(4)]
        await until(lambda: sum(engine.seen.running for engine in stage.engines) == 4)
        await gateway.discovery.replace(addresses(stage, 1), ())
        before = calls(stage)
        assert fleet.instances == [kept], "what stays is the same, with its load"
        assert kept.in_flight == stage.engines[1].seen.running
        behave(stage)
        assert {answer.status for answer in await asyncio.gather(*running)} == {200}
        assert (await stage.client.chat(key, "hi")).status == 200
        assert calls(stage) == [before[0], before[1] + 1]
        await gateway.discovery.replace(addresses(stage, 0, 1), ())
        asked = [stage.client.chat(key, f"again {n}") for n in range(4)]
        assert {answer.status for answer in await asyncio.gather(*asked)} == {200}
        assert calls(stage)[0] > before[0]
        with pytest.raises(ConfigError):
            await gateway.discovery.replace([InstanceAddress("x", "no url")], ())
        assert len(fleet.instances) == 2, "nothing has changed"


async def test_the_command_line_drains_and_resumes(tmp_path: Path, model: SimulatedModel) -> None:
    async with Stage(tmp_path, model) as stage:
        root = stage.deployment.account("hq", "root", roles=["operator"])

        async def run(*words: str, key: str = root) -> Result:
            environment = {"SCOPEKV_API_KEY": key, "SCOPEKV_GATEWAY": stage.deployment.url}
            run = CliRunner(env=environment).invoke
            return await asyncio.to_thread(run, instance, [*words])

        assert "in_use" in (await run("list")).stdout
        drained = await run("drain", "engine-0", "--json")
        assert json.loads(drained.stdout)["data"][0]["state"] == "drained"
        assert stage.deployment.gateway.fleet.instances[0].draining
        assert "in_use" in (await run("resume", "engine-0")).stdout
        for failed in (await run("drain", "nobody"), await run("list", key="sk-wrong")):
            assert failed.exit_code == 1
            assert failed.output.startswith("Error: ")


async def test_a_probe_says_what_it_can_and_holds_up_no_other(
    tmp_path: Path, model: SimulatedModel
) -> None:
    """A client that leaves says nothing of its engine; a refusal says that it works."""
    stage, loop = Stage(tmp_path, model), asyncio.get_running_loop()
    key = stage.deployment.account("acme", "alice")
    async with stage:
        circuit = stage.deployment.gateway.fleet.instances[0].circuit

        def opened() -> None:
            circuit.worked()
            for _ in range(3):
                circuit.failed(loop.time() - 60)
            assert circuit.open
            assert circuit.allows(loop.time())

        opened()
        behave(stage, held=True)
        probe = asyncio.create_task(stage.client.chat(key, "probe"))
        await until(lambda: not circuit.allows(loop.time()))
        probe.cancel()
        await until(lambda: circuit.allows(loop.time()), 15)
        for status, works in ((400, True), (429, True), (401, False), (500, False)):
            opened()
            behave(stage, refuses=status)
            await stage.client.chat(key, "refused")
            assert circuit.open is not works, status


async def test_this_sides_own_limit_says_nothing_of_an_engine(
    tmp_path: Path, model: SimulatedModel
) -> None:
    stage = Stage(tmp_path, model)
    key = stage.deployment.account("acme", "alice")
    async with stage:
        (only,) = stage.deployment.gateway.fleet.instances
        only.pool = ClientPool(only.address.url, limits=ClientLimits(connections_max=1))
        behave(stage, held=True)
        first = asyncio.create_task(stage.client.chat(key, "first"))
        await until(lambda: stage.engine.seen.running == 1)
        assert (await stage.client.chat(key, "second")).status == 503
        assert only.takes_requests
        assert not only.circuit.open
        behave(stage)
        assert (await first).status == 200
        assert (await stage.client.chat(key, "third")).status == 200
