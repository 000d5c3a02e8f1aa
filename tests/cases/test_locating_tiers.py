"""What lies in outer tiers draws its requests: an own disk to its engine, a shared store to all."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import pytest
import pytest_asyncio

from scopekv.adapters.broker_client import BrokerClient, BrokerSettings
from scopekv.cli.running import free_port
from scopekv.core.events import Medium
from scopekv.core.eviction import ScopedPolicy, Shares
from scopekv.core.reasons import RouteReason
from scopekv.core.routing import Choice
from scopekv.core.scopes import Narrowing, private_scope
from scopekv.gateway import locating
from scopekv.gateway.instances import Instance
from scopekv.gateway.routing import Asked, Route
from scopekv.gateway.settings import GatewaySettings
from scopekv.ports import ObjectStore
from scopekv.simulate.engine import SimulatedEngine
from scopekv.simulate.model import SimulatedModel
from scopekv.simulate.object_store import SimulatedObjectStore
from scopekv.simulate.sealed_tier import small_settings
from scopekv.simulate.stage import Stage, text_of
from scopekv.simulate.tiers import BLOCK_BYTES, SimulatedTiers
from scopekv.store.keyring import Keyring
from scopekv.store.tier import SealedTier

pytestmark = pytest.mark.slow

PROMPT = text_of("question", 120)
OUTER = (Medium.DIRECTORY, Medium.VALKEY)


disk_alone = pytest.mark.parametrize("tiered", [False], indirect=True)


class Tiered:
    """Two engines, each with host memory, a directory of its own, and one Valkey between them.

    The last is left out in tests marked `disk_alone`.
    """

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.choices: list[Choice] = []
        self.key = ""

    @property
    def locator(self) -> locating.IndexLocator:
        return self.stage.deployment.gateway.locator

    def watch(self) -> None:
        """Remember each choice of the router."""
        router = self.stage.deployment.gateway.router
        route = router.route

        def watched(asked: Asked, tried: Sequence[Instance] = ()) -> Route:
            made = route(asked, tried)
            self.choices.append(made.choice)
            return made

        router.route = watched  # type: ignore[method-assign]

    def size(self, number: int, *media: Medium) -> int:
        """How many blocks the index knows of an engine in these media, once all was told."""
        plugin = self.stage.engines[number].plugin
        assert plugin is not None
        plugin.bus.flush()
        return sum(self.locator.index.size(f"engine-{number}", medium) for medium in media)

    async def ask(self) -> tuple[int, int]:
        """Ask the prompt; which engine answered, and how many tokens it had."""
        answer = await self.stage.client.chat(self.key, PROMPT)
        usage = answer.json["usage"]["prompt_tokens_details"]
        return int(self.choices[-1].name[-1]), usage["cached_tokens"]

    async def kept(self, *media: Medium) -> int:
        """Ask once, and wait until the engine that answered has the blocks in these tiers."""
        number, _ = await self.ask()
        await self.known(number)
        for medium in media:
            await until(lambda medium=medium: self.size(number, medium) > 10)  # type: ignore[misc]
        return number

    async def known(self, number: int) -> None:
        """Wait until the gateway was told how fast an engine's tiers are."""
        feed = self.locator.feeds[f"engine-{number}"]
        await until(
            lambda: feed._tiers is not None and all(t.speed.samples for t in feed._tiers.nearest)
        )

    async def forget(self, number: int) -> None:
        """The blocks leave engine and host memory."""
        engine = self.stage.engines[number]
        assert engine.tiers is not None
        engine.cache.remove(engine.cache.all())
        engine.tiers.host.remove(engine.tiers.host.all())
        await until(lambda: self.size(number, Medium.ENGINE, Medium.HOST) == 0)

    def exact(self, number: int) -> bool:
        tiers = self.stage.engines[number].tiers
        assert tiers is not None
        self.size(number)
        return all(
            self.locator.index.contents(f"engine-{number}", tier.place().medium)
            == Counter(tier.residents.all().values())
            for tier in tiers.tiers
        )


async def until(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not done():
            await asyncio.sleep(0.01)


def _tiers(
    engine: SimulatedEngine, keyring: Keyring, stores: Sequence[ObjectStore]
) -> SimulatedTiers:
    assert engine.plugin is not None
    tiers = []
    for store in stores:
        shared = store.medium != "directory"
        tier = SealedTier(
            store,
            keyring,
            namespace=engine.plugin.namespace.fingerprint(),
            block_bytes=BLOCK_BYTES,
            settings=small_settings(shared=shared, store_id=b"one valkey" if shared else b""),
            policy=ScopedPolicy(Shares(1 << 30)),
        )
        tiers.append(tier)
    return SimulatedTiers(keyring, tiers, host_blocks=1000)


@pytest_asyncio.fixture(params=[True])
async def tiered(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    model: SimulatedModel,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[Tiered]:
    monkeypatch.setattr(locating, "HEARTBEAT_SECONDS", 0.05)
    port, folder = free_port("127.0.0.1"), tmp_path_factory.mktemp("e")
    settings = GatewaySettings((), port=port, stop_seconds_max=0.5)
    stage = Stage(tmp_path, model, plugins=(True, True), settings=settings)
    secret = stage.deployment.world.instance_secret_path
    broker = BrokerClient(BrokerSettings(f"http://127.0.0.1:{port}", secret))
    valkey = SimulatedObjectStore(medium="valkey")
    for number, engine in enumerate(stage.engines):
        engine.behaviour.token_seconds = 0.001
        engine.events_endpoint = f"ipc://{folder}/{number}"
        stores = [SimulatedObjectStore()]
        if request.param:
            stores.append(SimulatedObjectStore(beside=valkey, medium="valkey"))
        engine.put_behind(_tiers(engine, Keyring(broker, time.monotonic), stores))
    made = Tiered(stage)
    async with stage:
        made.key = stage.deployment.account("acme", "alice")
        made.watch()
        await until(lambda: len(made.locator.feeds) == 2)
        await until(lambda: all(feed.sure for feed in made.locator.feeds.values()))
        yield made
    for engine in stage.engines:
        assert engine.tiers is not None
        engine.tiers.close()
    broker.close()


@disk_alone
async def test_what_only_a_disk_has_draws_its_request_there(tiered: Tiered) -> None:
    number = await tiered.kept(Medium.DIRECTORY)
    await tiered.forget(number)
    assert tiered.exact(number)
    found, cached = await tiered.ask()
    assert found == number
    assert tiered.choices[-1].reason is RouteReason.PREFIX_IN_TIER
    assert cached > 100
    assert tiered.choices[-1].cached_tokens == cached


async def test_a_shared_store_serves_every_instance_that_shares_it(tiered: Tiered) -> None:
    number = await tiered.kept(*OUTER)
    other = 1 - number
    assert tiered.size(other, *Medium) == 0, "it has never seen the prompt"
    await tiered.stage.engines[number].stop()
    await tiered.stage.look()
    found, cached = await tiered.ask()
    assert found == other
    assert cached > 100


async def test_another_instance_is_located_by_the_shared_store(tiered: Tiered) -> None:
    number = await tiered.kept(*OUTER)
    index = tiered.locator.index
    name, other = f"engine-{number}", f"engine-{1 - number}"
    chain = next(iter(tiered.locator._hashes._last.values()))
    size = tiered.stage.engine.cache.block_size
    reach = index.locate(chain, [name, other], size)
    assert reach[name].engine == len(chain)
    assert (reach[other].engine, reach[other].tiers) == (0, ((Medium.VALKEY, len(chain)),))
    tiered.locator.index.clear(name, Medium.VALKEY)
    assert index.locate(chain, [other], size)[other].tiers == ()


async def test_a_purge_takes_the_places_away(tiered: Tiered) -> None:
    number = await tiered.kept(*OUTER)
    world = tiered.stage.deployment.world
    with world.registry.read() as view:
        (account,) = [
            found
            for org in view.orgs.list("", 100)
            if (found := view.accounts.get(org.uid, "alice")) is not None
        ]
    scope = private_scope(account.principal, Narrowing()).id(world.scope_secret).hex()
    instance = tiered.locator.feeds[f"engine-{number}"].instance
    await instance.ask("POST", "/v1/scopekv/purge", {"scopes": [[scope, 0]]}, seconds=10)
    await until(lambda: tiered.size(number, *Medium) == 0)
    assert tiered.exact(number)


@disk_alone
async def test_r3_a_restart_announces_what_lies_on_disk(tiered: Tiered) -> None:
    number = await tiered.kept(Medium.DIRECTORY)
    feed = tiered.locator.feeds[f"engine-{number}"]
    await tiered.stage.engines[number].restart()
    await until(lambda: not feed.sure)
    await tiered.stage.look()
    await until(lambda: feed.sure and tiered.size(number, Medium.DIRECTORY) > 10)
    assert tiered.size(number, Medium.ENGINE, Medium.HOST) == 0
    assert tiered.exact(number)
    await tiered.known(number)
    found, cached = await tiered.ask()
    assert found == number
    assert tiered.choices[-1].reason is RouteReason.PREFIX_IN_TIER
    assert cached > 100
