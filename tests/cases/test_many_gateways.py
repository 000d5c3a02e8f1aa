"""Several gateways in front of the same engines: each knows of the others' load, none needs them.

gateway of one half ---> engine-0 <--- gateway of both ---> engine-1
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from scopekv.core.backlogs import HEADER
from scopekv.core.block_hashes import short
from scopekv.core.events import Medium
from scopekv.gateway.app import Gateway
from scopekv.gateway.instances import Instance, InstanceAddress
from scopekv.gateway.settings import GatewaySettings
from scopekv.simulate.behaviour import Behaviour
from scopekv.simulate.client import Answer, PlainClient
from scopekv.simulate.deployment import Deployment
from scopekv.simulate.engine import SimulatedEngine
from scopekv.simulate.model import SimulatedModel
from scopekv.simulate.stage import ENGINE_KEY, text_of, until

pytestmark = pytest.mark.slow

BOTH = (0, 1)


@dataclass(slots=True)
class Site:
    """Two engines with events, a registry, and as many gateways as a test starts."""

    deployment: Deployment
    engines: list[SimulatedEngine]
    model: SimulatedModel

    def addresses(self, numbers: Sequence[int]) -> list[InstanceAddress]:
        return [
            InstanceAddress(f"engine-{n}", self.engines[n].url, ENGINE_KEY) for n in sorted(numbers)
        ]

    def calls(self) -> list[int]:
        return [len(engine.seen.calls) for engine in self.engines]

    def behave(self, behaviour: Behaviour) -> None:
        for engine in self.engines:
            engine.behaviour = behaviour


@pytest_asyncio.fixture
async def site(
    tmp_path: Path, model: SimulatedModel, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Site]:
    deployment, folder = Deployment(tmp_path), tmp_path_factory.mktemp("e")
    engines = [
        SimulatedEngine(
            model,
            keys_path=deployment.keys_path,
            api_key=ENGINE_KEY,
            events_endpoint=f"ipc://{folder}/{number}",
        )
        for number in BOTH
    ]
    for engine in engines:
        await engine.start()
    yield Site(deployment, engines, model)
    await deployment.stop()
    for engine in engines:
        await engine.stop()


@dataclass(slots=True)
class Front:
    """A gateway in this process, and a client of it."""

    gateway: Gateway
    client: PlainClient

    def instance(self, number: int) -> Instance:
        return self.gateway.fleet.named(f"engine-{number}")

    def of_others(self, number: int) -> int:
        load = self.instance(number).load
        return load.in_flight_of_all - load.in_flight


class Fronts:
    """Starts gateways of a site, and stops them."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._made: list[Front] = []

    async def start(self, numbers: Sequence[int] = BOTH) -> Front:
        settings = GatewaySettings(
            tuple(self._site.addresses(numbers)), port=0, stop_seconds_max=0.1
        )
        gateway = Gateway(settings, self._site.deployment.world)
        await gateway.start()
        await gateway.warmer.settle()
        client = PlainClient(f"http://127.0.0.1:{gateway.port}", self._site.model.name)
        self._made.append(Front(gateway, client))
        return self._made[-1]

    async def stop(self) -> None:
        for front in self._made:
            await front.client.close()
            await front.gateway.stop()


@pytest_asyncio.fixture
async def fronts(site: Site) -> AsyncIterator[Fronts]:
    made = Fronts(site)
    yield made
    await made.stop()


def flood(client: PlainClient, key: str, count: int) -> list[asyncio.Task[Answer]]:
    return [
        asyncio.create_task(client.chat(key, text_of(f"flood {n}", 60), stream=True))
        for n in range(count)
    ]


async def measured(front: Front, key: str, numbers: Sequence[int]) -> None:
    """Let a gateway measure how fast engines are: until then all count as equally fast."""
    number = 0
    while not all(front.instance(n).load.samples > 2 for n in numbers):
        two = [f"{id(front)} {number + n}" for n in BOTH]
        await asyncio.gather(*(front.client.chat(key, text, stream=True) for text in two))
        number += 2


async def test_new_work_avoids_the_instance_that_another_gateway_floods(
    site: Site, fronts: Fronts
) -> None:
    key = site.deployment.account("acme", "alice")
    half, both = await fronts.start([0]), await fronts.start()
    site.behave(Behaviour(token_seconds=0.002, event_seconds=0.01))
    await measured(half, key, [0])
    await measured(both, key, BOTH)
    flooding = flood(half.client, key, 12)
    await until(lambda: both.of_others(0) > 8)
    assert both.of_others(1) == 0
    before = site.calls()
    new = [await both.client.chat(key, f"new {n}", stream=n % 2 == 0) for n in range(6)]
    assert [now - then for now, then in zip(site.calls(), before, strict=True)] == [0, 6]
    assert both.instance(0).in_flight == 0, "others are in no count of its own (R10)"
    answers = [*new, *await asyncio.gather(*flooding)]
    assert {answer.status for answer in answers} == {200}
    # What engines say of load is all tenants' (L10).
    assert all(name != HEADER for answer in answers for name, _ in answer.headers)
    await until(lambda: both.of_others(0) == 0)


async def test_one_gateway_alone_never_hears_of_anybody(site: Site, fronts: Fronts) -> None:
    """Whatever is placed, on its way, or finished and not yet told, when a look is answered."""
    key = site.deployment.account("acme", "alice")
    only = await fronts.start()
    site.behave(Behaviour(head_seconds=0.02, event_seconds=0.005))
    heard: list[int] = []

    async def looks() -> None:
        while True:
            await asyncio.gather(*(only.gateway.fleet.look(only.instance(n)) for n in BOTH))
            heard.extend(only.of_others(n) for n in BOTH)

    looking = asyncio.create_task(looks())
    answers = await asyncio.gather(
        *(only.client.chat(key, f"question {n}", stream=n % 2 == 0) for n in range(40))
    )
    looking.cancel()
    assert {answer.status for answer in answers} == {200}
    assert set(heard) == {0}
    assert [only.instance(n).in_flight for n in BOTH] == [0, 0]


async def test_a_client_cannot_speak_for_a_gateway(site: Site, fronts: Fronts) -> None:
    key = site.deployment.account("acme", "alice")
    both = await fronts.start()
    lie = [(HEADER, b"f" * 16 + b" 900000.000 99 99")]
    answer = await both.client.chat(key, "hi", headers=lie)
    assert answer.status == 200
    (call,) = [call for engine in site.engines for call in engine.seen.calls]
    (told,) = [value for name, value in call.headers if name == HEADER]
    assert not told.startswith(b"f" * 16)
    for number in BOTH:
        await both.gateway.fleet.look(both.instance(number))
    assert [both.of_others(n) for n in BOTH] == [0, 0]


async def test_every_gateway_follows_the_events_itself(site: Site, fronts: Fronts) -> None:
    key = site.deployment.account("acme", "alice")
    made = [await fronts.start(), await fronts.start()]

    def exact() -> bool:
        return all(
            front.gateway.locator.index.contents(f"engine-{n}", Medium.ENGINE)
            == Counter(short(one) for one in engine.cache.all())
            for front in made
            for n, engine in enumerate(site.engines)
        )

    prompt = text_of("session", 120)
    for number in range(4):
        answer = await made[number % 2].client.chat(key, prompt)
        assert (answer.cached > 100) is (number > 0), "what one computed, the other finds"
        await until(exact)
    assert sorted(site.calls()) == [0, 4]


# Killing one: real processes.


@contextmanager
def process(folder: Path, name: str, site: Site, numbers: Sequence[int]) -> Iterator[Process]:
    """`scopekv gateway --config`, over the site's registry."""
    config = folder / f"{name}.toml"
    config.write_text(
        "".join(
            f'[[instances]]\nname = "{a.name}"\nurl = "{a.url}"\napi_key = "{a.api_key}"\n'
            for a in site.addresses(numbers)
        )
    )
    command = [
        *(str(Path(sys.executable).with_name("scopekv")), "gateway", "--port", "0"),
        *("--config", str(config), "--data-dir", str(folder)),
    ]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as running:
        try:
            yield Process(running)
        finally:  # else a test that fails would wait for it for ever
            running.kill()


class Process:
    """A gateway of its own."""

    def __init__(self, running: subprocess.Popen[str]) -> None:
        self._running = running

    async def url(self) -> str:
        stdout = self._running.stdout
        assert stdout is not None
        line = await asyncio.wait_for(asyncio.to_thread(stdout.readline), 200)
        return line.split()[-1]

    def kill(self) -> None:
        self._running.send_signal(signal.SIGKILL)
        self._running.wait()


async def paced(client: PlainClient, key: str, count: int) -> list[Answer]:
    """20 requests a second, each on its own."""
    asked = []
    for number in range(count):
        asked.append(asyncio.create_task(client.chat(key, f"question {number}", stream=True)))
        await asyncio.sleep(0.05)
    return list(await asyncio.gather(*asked))


async def test_a_killed_gateway_costs_the_others_clients_nothing_and_its_load_is_forgotten(
    site: Site, tmp_path: Path
) -> None:
    key = site.deployment.account("acme", "alice")
    root = site.deployment.account("hq", "root", roles=["operator"])
    with (
        process(tmp_path, "half", site, [0]) as half,
        process(tmp_path, "both", site, BOTH) as both,
    ):
        clients = [PlainClient(await one.url(), site.model.name) for one in (half, both)]
        site.behave(Behaviour(head_seconds=0.1))
        site.engines[0].behaviour = Behaviour(head_seconds=60)  # the flood would last
        flooding = flood(clients[0], key, 20)
        await until(lambda: site.engines[0].seen.running == 20)

        async def of_others() -> list[int]:
            answer = await clients[1].send("GET", "/admin/v1/instances", key=root)
            return [row["of_other_gateways"] for row in answer.json["data"]]

        async def hears(expected: list[int]) -> None:
            async with asyncio.timeout(60):
                while await of_others() != expected:
                    await asyncio.sleep(0.05)

        await hears([20, 0])
        site.engines[0].behaviour = site.engines[1].behaviour
        load = asyncio.create_task(paced(clients[1], key, 60))
        await asyncio.sleep(0.5)
        before = len(site.engines[0].seen.calls)
        half.kill()
        gone = await asyncio.gather(*flooding, return_exceptions=True)
        assert all(isinstance(one, Exception) for one in gone)
        await until(lambda: site.engines[0].seen.abandoned == 20)
        answers = await load
        assert {answer.status for answer in answers} == {200}
        assert not any(b'"error"' in answer.content for answer in answers)
        await hears([0, 0])
        await asyncio.gather(*(clients[1].chat(key, f"again {n}") for n in range(8)))
        assert len(site.engines[0].seen.calls) > before, "it is used again"
        for client in clients:
            await client.close()
