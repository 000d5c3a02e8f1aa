"""Several gateways in front of the same engines: each knows of the others' load, none needs them.

gateway of one half ---> engine-0 <--- gateway of both ---> engine-1
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import pytest
import pytest_asyncio

from scopekv.core.backlogs import HEADER
from scopekv.core.block_hashes import short
from scopekv.core.events import Medium
from scopekv.gateway.app import Gateway
from scopekv.gateway.instances import Instance
from scopekv.gateway.settings import GatewaySettings
from scopekv.simulate.behaviour import Behaviour
from scopekv.simulate.client import PlainClient
from scopekv.simulate.stage import text_of, until
from tests.cases.gateway_site import BOTH, Site, flood

pytestmark = pytest.mark.slow


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
