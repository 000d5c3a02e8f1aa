"""Names that stand for instances, and a file that changes."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any, Self

import pytest

from scopekv.cli.running import follow
from scopekv.errors import ConfigError, Unavailable
from scopekv.gateway.discovery import Cluster, Discovery, Source, ready, resolve
from scopekv.gateway.http import Reply, Request, Server
from scopekv.gateway.settings import RoutingSettings
from scopekv.gateway.settings_file import read_settings
from scopekv.simulate.engine import SimulatedEngine
from scopekv.simulate.model import SimulatedModel
from scopekv.simulate.stage import ENGINE_KEY, Stage, until

pytestmark = pytest.mark.slow


def calls(stage: Stage) -> list[int]:
    return [len(engine.seen.calls) for engine in stage.engines]


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
