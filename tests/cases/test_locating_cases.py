"""R2 to R4 and I10 of the event bus: what the gateway knows of its engines' caches."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from scopekv.core.block_hashes import root_of, short
from scopekv.core.events import Medium
from scopekv.core.following import Doubt
from scopekv.core.prefixes import Mark
from scopekv.core.routing import CachedThere
from scopekv.core.tickets import audience_id
from scopekv.gateway.instances import Instance
from scopekv.gateway.locating import IndexLocator
from scopekv.gateway.permits import Issuer
from scopekv.gateway.routing import Asked
from scopekv.simulate.engine import SimulatedEngine
from scopekv.simulate.model import SimulatedModel
from scopekv.simulate.stage import Stage, text_of

pytestmark = pytest.mark.slow

PROMPT = text_of("question", 120)


class Watched(IndexLocator):
    """Remembers what was asked, and what it said."""

    asked: Asked | None = None
    told: Mapping[str, CachedThere | None] = {}

    def locate(
        self, asked: Asked, marked: Sequence[Mark], instances: Sequence[Instance]
    ) -> Mapping[str, CachedThere | None]:
        self.asked, self.told = asked, super().locate(asked, marked, instances)
        return self.told


@pytest_asyncio.fixture
async def pair(
    tmp_path: Path, model: SimulatedModel, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Stage]:
    stage = Stage(tmp_path, model, plugins=(True, True))
    folder = tmp_path_factory.mktemp("e")
    for number, engine in enumerate(stage.engines):
        engine.events_endpoint = f"ipc://{folder}/{number}"
    async with stage:
        yield stage


@pytest_asyncio.fixture
async def locator(pair: Stage) -> AsyncIterator[Watched]:
    world, gateway = pair.deployment.world, pair.deployment.gateway
    issuer = Issuer(
        world.signer.key_id, world.signer.sign, world.scope_secret, audience_id("default"), 30_000
    )
    made = Watched(gateway.fleet, issuer)
    gateway.router._locator = made
    gateway.fleet.on_forgotten.append(made.forget)
    made.start()
    await until(lambda: len(made.feeds) == 2 and all(f.sure for f in made.feeds.values()))
    yield made
    await made.stop()


async def until(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not done():
            await asyncio.sleep(0.01)


def exact(locator: IndexLocator, stage: Stage) -> bool:
    """Whether the index holds of each engine what the engine holds."""
    return all(
        locator.index.contents(f"engine-{n}", Medium.ENGINE)
        == Counter(short(one) for one in engine.cache.all())
        for n, engine in enumerate(stage.engines)
    )


def served(stage: Stage) -> tuple[int, SimulatedEngine]:
    return max(enumerate(stage.engines), key=lambda one: len(one[1].seen.calls))


async def test_an_instance_is_located_by_exactly_what_it_then_finds_cached(
    pair: Stage, locator: Watched
) -> None:
    key = pair.deployment.account("acme", "alice")
    await pair.client.chat(key, PROMPT)
    number, engine = served(pair)
    await until(lambda: exact(locator, pair) and len(engine.cache) > 0)
    answer = await pair.client.chat(key, PROMPT)
    cached = answer.json["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert cached > 100
    there = {f"engine-{number}": CachedThere(cached), f"engine-{1 - number}": CachedThere(0)}
    assert locator.told == there


async def test_r2_ten_scopes_with_the_same_private_prompt_have_no_affinity(
    pair: Stage, locator: Watched
) -> None:
    keys = [pair.deployment.account(f"org{n}", "user") for n in range(10)]
    for key in keys:
        await until(lambda: exact(locator, pair))
        await pair.client.chat(key, PROMPT)
        assert set(locator.told.values()) == {CachedThere(0)}


async def test_r3_a_restart_in_place_is_forgotten_at_once(pair: Stage, locator: Watched) -> None:
    key = pair.deployment.account("acme", "alice")
    await pair.client.chat(key, PROMPT)
    number, engine = served(pair)
    name = f"engine-{number}"
    await until(lambda: locator.index.size(name, Medium.ENGINE) > 0)
    await engine.restart()
    await until(lambda: not locator.feeds[name].sure)
    await pair.look()
    await until(lambda: locator.feeds[name].sure)
    assert exact(locator, pair)
    assert locator.index.size(name, Medium.ENGINE) == len(engine.cache)
    await pair.client.chat(key, PROMPT)
    assert locator.told[name] == CachedThere(0)


async def test_r4_a_lost_event_means_load_only_until_a_snapshot_made_it_good(
    pair: Stage, locator: Watched
) -> None:
    key = pair.deployment.account("acme", "alice")
    engine = pair.engines[0]
    assert engine.plugin is not None
    bus, feed = engine.plugin.bus, locator.feeds["engine-0"]
    (deliver,) = bus.deliver
    lost: list[int] = []
    bus.deliver[:] = [lambda *batch: lost.append(batch[0])]
    ids = list(range(100))
    engine.cache.prefill(ids, engine.cache.hashes(ids, lambda *_: ()))
    bus.flush()
    bus.deliver[:] = [deliver]
    assert lost
    engine.cache.remove(engine.cache.all()[:1])
    bus.flush()
    before = feed.follower.counts["snapshots"]
    await until(lambda: feed.follower.counts["snapshots"] > before)
    assert feed.follower.counts["gaps"]
    assert feed.sure
    assert exact(locator, pair)
    feed.follower.lost(Doubt.GAP)  # and at such a moment:
    await pair.client.chat(key, PROMPT)
    assert locator.told["engine-0"] is None


async def test_a_seed_that_is_told_is_followed(pair: Stage, locator: Watched) -> None:
    engine = pair.engines[0]
    engine.cache.root = root_of("another")
    await engine.restart()
    await pair.look()
    await until(lambda: locator.feeds["engine-0"].sure)
    assert locator.feeds["engine-0"].hashing != locator.feeds["engine-1"].hashing


@pytest.mark.parametrize("difference", ["hash algorithm", "block hashes", "template"])
async def test_another_way_of_hashing_is_named_and_means_load_only(
    pair: Stage, locator: Watched, difference: str, caplog: pytest.LogCaptureFixture
) -> None:
    engine = pair.engines[0]
    plugin = engine.plugin
    assert plugin is not None
    if difference == "hash algorithm":
        plugin.namespace = replace(plugin.namespace, hash_algorithm="sha256")
    elif difference == "template":
        engine.behaviour.template_shown = "{{ messages[0].content | upper }}"
    else:
        plugin.cache.hashes = lambda *_: [root_of()] * 3  # type: ignore[method-assign]
    with caplog.at_level(logging.WARNING, "scopekv.locating"):
        await engine.restart()
        await pair.look()
        await until(lambda: bool(locator.feeds["engine-0"].problem))
    assert locator.feeds["engine-0"].problem.startswith(difference)
    assert difference in caplog.text
    key = pair.deployment.account("acme", "alice")
    await pair.client.chat(key, PROMPT)
    if difference == "template":
        assert locator.told["engine-0"] is not None, "remembered by what was sent there"
    else:
        assert locator.told["engine-0"] is None
    assert locator.told["engine-1"] is not None


async def test_i10_a_bus_that_others_can_reach_is_not_listened_to(
    pair: Stage, locator: Watched
) -> None:
    engine = pair.engines[0]
    engine.events_endpoint = None
    await engine.restart()
    plugin = engine.plugin
    assert plugin is not None
    plugin.bus.endpoint = "tcp://*:5557"
    await pair.look()
    await until(lambda: "not authenticated" in locator.feeds["engine-0"].problem)
    key = pair.deployment.account("acme", "alice")
    for _ in range(2):
        await pair.client.chat(key, PROMPT)
    assert locator.told["engine-0"] is not None, "remembered by what was sent there"
