"""Instances that come, go, rest and fill up while requests are under way."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any, Self

import pytest
from click.testing import CliRunner, Result

from scopekv.cli.admin.instances import instance
from scopekv.cli.running import follow
from scopekv.errors import ConfigError, Unavailable
from scopekv.gateway.discovery import Cluster, Discovery, Source, ready, resolve
from scopekv.gateway.http import Reply, Request, Server
from scopekv.gateway.instances import InstanceAddress
from scopekv.gateway.settings import GatewaySettings, RoutingSettings
from scopekv.gateway.settings_file import read_settings
from scopekv.simulate.behaviour import Behaviour
from scopekv.simulate.client import Answer
from scopekv.simulate.engine import SimulatedEngine
from scopekv.simulate.model import SimulatedModel
from scopekv.simulate.stage import ENGINE_KEY, Stage, until

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


# More requests than places.


def limited(**values: Any) -> GatewaySettings:
    return GatewaySettings((), port=0, stop_seconds_max=0.5, routing=RoutingSettings(**values))


async def test_what_finds_no_place_waits_and_what_finds_no_room_is_told_when_to_come_back(
    tmp_path: Path, model: SimulatedModel
) -> None:
    stage = Stage(tmp_path, model, settings=limited(in_flight_max=2, waiting_max=2))
    key = stage.deployment.account("acme", "alice")
    async with stage:
        behave(stage, held=True)
        asked = [asyncio.create_task(stage.client.chat(key, f"q{n}")) for n in range(7)]
        await until(lambda: sum(one.done() for one in asked) == 3)
        behave(stage)
        answers = await asyncio.gather(*asked)
        assert sorted(answer.status for answer in answers) == [200] * 4 + [429] * 3
        (refused, *_) = [answer for answer in answers if answer.status == 429]
        assert refused.error["code"] == "overloaded"
        assert int(dict(refused.headers)[b"retry-after"]) >= 1
        room = stage.deployment.gateway.room
        assert (room.taken, room.waiting) == (0, 0)
        assert (await stage.client.chat(key, "hi")).status == 200


async def test_a_tenant_that_floods_the_line_does_not_keep_another_out(
    tmp_path: Path, model: SimulatedModel
) -> None:
    stage = Stage(tmp_path, model, settings=limited(in_flight_max=1, waiting_max=6))
    alice = stage.deployment.account("acme", "alice")
    bob = stage.deployment.account("globex", "bob")
    async with stage:
        behave(stage, held=True)
        flood = [asyncio.create_task(stage.client.chat(alice, f"q{n}")) for n in range(20)]
        room = stage.deployment.gateway.room
        await until(lambda: room.waiting == 6 and sum(one.done() for one in flood) == 13)
        asked = [asyncio.create_task(stage.client.chat(bob, f"b{n}")) for n in range(3)]
        await until(lambda: sum(one.done() for one in flood) == 16)
        behave(stage)
        assert [answer.status for answer in await asyncio.gather(*asked)] == [200] * 3
        statuses = [answer.status for answer in await asyncio.gather(*flood)]
        assert statuses.count(200) == 4, "one at once, three of the six that waited"
        assert set(statuses) == {200, 429}


async def test_a_wait_ends_at_its_deadline_and_when_its_client_leaves(
    tmp_path: Path, model: SimulatedModel
) -> None:
    stage = Stage(tmp_path, model, settings=limited(in_flight_max=1, wait_seconds_max=1.0))
    key = stage.deployment.account("acme", "alice")
    async with stage:
        behave(stage, held=True)
        room = stage.deployment.gateway.room
        first = asyncio.create_task(stage.client.chat(key, "first"))
        await until(lambda: room.taken)
        left = asyncio.create_task(stage.client.chat(key, "left"))
        await until(lambda: room.waiting or left.done())
        left.cancel()
        await until(lambda: not room.waiting)
        assert (await stage.client.chat(key, "late")).status == 429
        behave(stage)
        assert (await first).status == 200
        assert len(stage.engine.seen.calls) == 1
        await until(lambda: (room.taken, room.waiting) == (0, 0))


# Names that stand for instances.


async def test_a_dns_name_is_one_instance_for_each_of_its_addresses() -> None:
    found = await resolve(Source("pool", dns="http://localhost:8123", api_key="k"))
    assert "http://127.0.0.1:8123" in {one.url for one in found}
    assert {one.api_key for one in found} == {"k"}
    with pytest.raises(Unavailable):
        await resolve(Source("pool", dns="http://no-such-name.invalid:1"))


class Api:
    """A Kubernetes API that knows one service."""

    def __init__(self, folder: Path) -> None:
        (folder / "token").write_text("service-account-token\n")
        self.folder, self.addresses, self.status = folder, list[str](), 200
        self.port = 0
        self._server = Server(self._serve)

    async def __aenter__(self) -> Self:
        self._port = await self._server.start("127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.close(grace_seconds=0)

    def cluster(self) -> Cluster:
        return Cluster(f"http://127.0.0.1:{self._port}", self.folder)

    async def _serve(self, request: Request, reply: Reply) -> None:
        assert request.header(b"authorization") == b"Bearer service-account-token"
        assert request.path == "/api/v1/namespaces/inference/endpoints/vllm"
        ips = ",".join(f'{{"ip":"{ip}"}}' for ip in self.addresses)
        body = (
            f'{{"kind":"Endpoints","subsets":[{{"addresses":[{ips}],"notReadyAddresses":'
            f'[{{"ip":"10.9.9.9"}}],"ports":[{{"name":"http","port":{self.port}}},'
            '{"name":"metrics","port":9}]}]}'
        )
        reply.send(self.status, [], body.encode())


async def test_kubernetes_endpoints_are_followed_and_an_outage_changes_nothing(
    tmp_path: Path, model: SimulatedModel
) -> None:
    async with Stage(tmp_path, model) as stage, Api(tmp_path) as api:
        key = stage.deployment.account("acme", "alice")
        gateway = stage.deployment.gateway
        api.port = int(stage.engine.url.rpartition(":")[2])
        source = Source("pool", kubernetes="inference/vllm:http", api_key=ENGINE_KEY)
        discovery = Discovery(gateway.fleet, (), (source,), 60, api.cluster)
        await discovery.settle()
        assert gateway.fleet.instances == []
        assert (await stage.client.chat(key, "hi")).status == 503
        api.addresses = ["127.0.0.1"]
        await discovery.settle()
        assert (await stage.client.chat(key, "hi")).status == 200
        (found,) = gateway.fleet.instances
        assert found.address.name == f"pool-127.0.0.1:{api.port}"
        api.status = 500
        await discovery.settle()
        assert gateway.fleet.instances == [found]


@pytest.mark.parametrize("answer", [[], {"subsets": [{"addresses": [{"ip": "evil.example"}]}]}])
def test_what_is_no_endpoints_object_is_refused(answer: Any) -> None:
    with pytest.raises(Unavailable):
        ready(answer, "80")


def test_the_file_names_instances_in_three_ways_and_the_limits(tmp_path: Path) -> None:
    path = tmp_path / "scopekv.toml"
    path.write_text(
        '[[instances]]\nname = "a"\nurl = "http://a:1"\n'
        '[[instances]]\nname = "b"\ndns = "http://b:1"\n'
        '[[instances]]\nname = "c"\nkubernetes = "ns/c:8000"\n'
        "[routing]\nin_flight_max = 7\n"
    )
    settings = read_settings(path)
    assert [one.name for one in settings.instances] == ["a"]
    assert [(one.name, bool(one.dns)) for one in settings.sources] == [("b", True), ("c", False)]
    assert settings.routing == RoutingSettings(in_flight_max=7)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('[[instances]]\nname = "a"\n', "url, dns, kubernetes"),
        ('[[instances]]\nname = "a"\nurl = "http://a"\ndns = "http://b"\n', "url, dns"),
        ('[[instances]]\nname = "a"\nkubernetes = "../x:1"\n', "NAMESPACE/SERVICE"),
        ('[[instances]]\nname = "a"\ndns = "https://a"\n', "http://NAME"),
        ('[[instances]]\nname = "a"\nurl = "http://a"\n[routing]\nin_flight_max = 0\n', "in_fl"),
        (
            '[[instances]]\nname = "a"\nurl = "http://a"\n[routing]\nwait_seconds_max = nan\n',
            "wait",
        ),
    ],
)
def test_a_file_that_cannot_route_is_refused_by_name(tmp_path: Path, text: str, named: str) -> None:
    path = tmp_path / "scopekv.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=named):
        read_settings(path)


async def test_instances_of_a_changed_file_are_used_without_a_restart(
    tmp_path: Path, model: SimulatedModel
) -> None:
    async with Stage(tmp_path, model) as stage:
        key = stage.deployment.account("acme", "alice")
        keys_path = stage.deployment.keys_path
        path = tmp_path / "scopekv.toml"
        path.write_text("")
        gateway = stage.deployment.gateway
        following = asyncio.create_task(follow(path, gateway))
        async with SimulatedEngine(model, keys_path=keys_path, api_key="other") as second:
            path.write_text(
                f'[[instances]]\nname = "second"\nurl = "{second.url}"\napi_key = "other"\n'
            )
            os.kill(os.getpid(), signal.SIGHUP)
            await until(lambda: gateway.fleet.instances[0].address.name == "second")
            await until(lambda: gateway.fleet.instances[0].up)
            assert (await stage.client.chat(key, "hi")).status == 200
            assert (len(second.seen.calls), calls(stage)) == (1, [0])
            path.write_text("instances = [")
            os.kill(os.getpid(), signal.SIGHUP)
            await asyncio.sleep(0.2)
            assert not following.done(), "a file that makes no sense changes nothing"
            one = stage.engine
            path.write_text(
                f'[[instances]]\nname = "first"\nurl = "{one.url}"\napi_key = "{one.api_key}"\n'
            )  # and no signal: the file is looked at
            await until(lambda: gateway.fleet.instances[0].address.name == "first")
        following.cancel()
