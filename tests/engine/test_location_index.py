"""The location index against the real vLLM: exact, and it foretells what is found cached."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

import pytest
import pytest_asyncio

from scopekv.core.events import Medium, decode_snapshot
from scopekv.core.following import Doubt
from scopekv.core.routing import CachedThere
from scopekv.core.scopes import Narrowing, Scope, private_scope
from scopekv.core.tickets import audience_id
from scopekv.gateway.instances import Instance
from scopekv.gateway.locating import Feed, IndexLocator
from scopekv.gateway.permits import Issuer
from scopekv.gateway.routing import Asked
from scopekv.simulate.client import PlainClient
from scopekv.simulate.deployment import Deployment
from scopekv.simulate.stage import text_of

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="session")]
Keys = dict[str, str]


class Watched(IndexLocator):
    asked: Asked | None = None
    told: Mapping[str, CachedThere | None] = {}

    def ask(self, asked: Asked) -> None:
        self.asked = asked
        self.told = self.locate(asked, (), self._fleet.instances)


@pytest_asyncio.fixture(loop_scope="session")
async def locator(deployment: Deployment) -> AsyncIterator[Watched]:
    world, gateway = deployment.world, deployment.gateway
    issuer = Issuer(
        world.signer.key_id, world.signer.sign, world.scope_secret, audience_id("default"), 30_000
    )
    made = Watched(gateway.fleet, issuer)
    route = gateway.router.route

    def routed(asked: Asked, tried: Sequence[Instance] = ()) -> object:
        made.ask(asked)  # one instance alone is not located by the router
        return route(asked, tried)

    gateway.router.route = routed  # type: ignore[method-assign,assignment]
    made.start()
    await until(lambda: bool(made.feeds) and feed_of(made).sure, lambda: str(made.report()))
    yield made
    gateway.router.route = route  # type: ignore[method-assign]
    await made.stop()


def feed_of(locator: IndexLocator) -> Feed:
    (feed,) = locator.feeds.values()
    return feed


async def until(done: Callable[[], bool], why: Callable[[], str] = str) -> None:
    for _ in range(3000):
        if done():
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"it did not come about {why()}")


async def snapshot(feed: Feed) -> dict[Medium, Counter[int]]:
    """What the engine holds, asked again until the index is as far as it."""
    for _ in range(200):
        answer = await feed.instance.control.request(
            "GET", "/v1/scopekv/snapshot", feed.instance.headers(), b"", timeout_seconds=30
        )
        async with answer:
            found = decode_snapshot(await answer.read(1 << 26))
        assert found.blocks is not None
        if found.sequence == feed.follower.next_sequence:
            return {medium: Counter(hashes) for medium, hashes in found.blocks.items()}
        await asyncio.sleep(0.05)
    raise AssertionError("the index does not come after")


async def assert_exact(locator: Watched) -> None:
    feed = feed_of(locator)
    held = await snapshot(feed)
    assert set(held) == {Medium.ENGINE, Medium.HOST, Medium.DIRECTORY}
    for medium in held:
        assert locator.index.contents(feed.name, medium) == held[medium], medium
    assert feed.sure


async def test_the_index_is_the_engines_cache_and_foretells_what_is_found(
    locator: Watched, deployment: Deployment, client: PlainClient, keys: Keys, document: str
) -> None:
    feed = feed_of(locator)
    assert feed.problem == ""
    for turn in range(4):
        for name in ("alice", "bob"):
            prompt = document + text_of(f"located {name}", 40 + 20 * turn)
            await client.chat(keys[name], prompt)
    await assert_exact(locator)
    assert locator.index.size(feed.name, Medium.ENGINE) > 10
    assert locator.index.size(feed.name, Medium.HOST) > 0, "host memory tells, too"
    for name in ("alice", "bob", "ann"):
        answer = await client.chat(keys[name], document + text_of("located alice", 100))
        cached = answer.json["usage"]["prompt_tokens_details"]["cached_tokens"]
        there = locator.told[feed.name]
        assert there is not None
        assert there.tokens == cached, name
    await assert_exact(locator)


async def test_what_memory_lost_is_located_on_disk(
    locator: Watched, client: PlainClient, keys: Keys
) -> None:
    feed = feed_of(locator)
    answer = await client.chat(keys["alice"], text_of("to be found on disk", 120))
    tokens = answer.json["usage"]["prompt_tokens"]

    def located() -> CachedThere:
        """Where the prompt is for an engine that just lost what it had in memory."""
        assert locator.asked is not None
        for medium in (Medium.ENGINE, Medium.HOST):
            locator.index.clear(feed.name, medium)
        there = locator.locate(locator.asked, (), (feed.instance,))[feed.name]
        assert there is not None
        return there

    await until(lambda: locator.index.size(feed.name, Medium.DIRECTORY) > 0)
    await until(lambda: sum(run.blocks for run in located().runs) == (tokens - 1) // 32)
    there = located()
    assert (there.tokens, there.chunk_tokens) == (0, 32)
    assert there.chunk_bytes > 1 << 20
    feed.follower.lost(Doubt.GAP)  # this test took things away behind its back
    await until(lambda: feed.sure)
    await assert_exact(locator)


async def test_what_a_purge_removes_leaves_the_index(
    locator: Watched, deployment: Deployment, client: PlainClient, keys: Keys
) -> None:
    feed = feed_of(locator)
    await client.chat(keys["first"], text_of("to be purged", 120))
    await assert_exact(locator)
    before = sum(locator.index.size(feed.name, medium) for medium in Medium)
    ticket_scopes = [
        [scope.id(deployment.world.scope_secret).hex(), 0]
        for scope in _scopes_of(deployment, "first")
    ]
    await feed.instance.ask("POST", "/v1/scopekv/purge", {"scopes": ticket_scopes}, seconds=30)
    await assert_exact(locator)
    assert sum(locator.index.size(feed.name, medium) for medium in Medium) < before


def _scopes_of(deployment: Deployment, name: str) -> list[Scope]:
    with deployment.world.registry.read() as view:
        found = [view.accounts.get(org.uid, name) for org in view.orgs.list("", 100)]
    return [private_scope(a.principal, Narrowing()) for a in found if a is not None]
