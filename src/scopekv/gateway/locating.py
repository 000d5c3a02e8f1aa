"""What each instance has of a prompt, from the engines' own events: the router's `Locator`.

    engine ──events──▶ subscriber ──▶ follower ──▶ location index ◀── chain of the request
       └──/v1/scopekv/snapshot: at the start, and where events were lost ──▶┘

An instance is located only while it is followed without a doubt and hashes as this gateway does.
One that publishes no events is remembered by what was sent there, and so is a prompt that engines
render themselves; any other doubt means that an instance is chosen by its load alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping, Sequence

from scopekv.compose import KVEventSubscriber
from scopekv.core.events import Batch, OuterTiers, Snapshot, decode_snapshot
from scopekv.core.fetching import Run
from scopekv.core.following import Doubt, Follower
from scopekv.core.locations import BYTES_MAX, LocationIndex, Reach
from scopekv.core.prefixes import Mark
from scopekv.core.routing import CachedThere
from scopekv.errors import ConfigError, Misuse, ScopeKVError, Unavailable
from scopekv.gateway.fleet import Fleet
from scopekv.gateway.hashes import Hashing, PromptHashes
from scopekv.gateway.instances import Instance, Isolation
from scopekv.gateway.permits import Issuer
from scopekv.gateway.routing import Asked, NullLocator

TICK_SECONDS = 0.02
IDLE_TICK_SECONDS = 0.1  # where there is nothing to follow; each tick wakes a sleeping core
HEARTBEAT_SECONDS = 2.0
SNAPSHOT_SECONDS_MAX = 30.0
SNAPSHOT_BYTES_MAX = 256 << 20
log = logging.getLogger("scopekv.locating")


class Feed:
    """One instance as followed: its subscriber, its follower, how it hashes."""

    def __init__(self, index: LocationIndex, instance: Instance, endpoint: str | None) -> None:
        self.instance, self._index = instance, index
        self._tiers: OuterTiers | None = None
        self.name = instance.address.name
        self.follower = Follower(index, self.name)
        self.hashing: Hashing | None = None
        self.problem = ""
        self._endpoint = endpoint
        self._refused = ""  # an endpoint that must not be used, said once
        self._proven = ""  # the life that was proven
        self._subscriber: KVEventSubscriber | None = None
        self._heartbeat_at = float("-inf")

    @property
    def publishes(self) -> bool:
        """Whether the instance has events for us at all."""
        return (
            self._subscriber is not None
            and self.instance.isolation is Isolation.SCOPED
            and self.follower.doubt is not Doubt.NO_EVENTS
        )

    @property
    def sure(self) -> bool:
        return self.hashing is not None and self.follower.sure

    async def step(self, hashes: PromptHashes) -> None:
        """Do what is due: connect, prove, listen to the heart, take a snapshot."""
        if self.instance.isolation is not Isolation.SCOPED:
            return
        await self._connect()
        if self._subscriber is None:
            return
        if self._proven != self.instance.epoch:
            self.hashing, self.problem = await hashes.difference(self.instance)
            self._proven = self.instance.epoch
            if self.problem:
                log.warning("instance %s is not located: %s", self.name, self.problem)
        now = _now()
        if not self._subscriber.connected.is_set():
            return  # what a snapshot said would be out of date before the first event
        if self.follower.due(now):
            await self._resync(now)
        elif now - self._heartbeat_at >= HEARTBEAT_SECONDS:
            self._heartbeat_at = now
            heard = await self._ask("?blocks=false")
            self.follower.heard(heard.instance, heard.sequence, _now())

    async def stop(self) -> None:
        subscriber, self._subscriber = self._subscriber, None
        if subscriber is not None:
            await subscriber.stop()

    async def _connect(self) -> None:
        endpoint = self._endpoint or self.instance.status.get("events")
        if not isinstance(endpoint, str) or endpoint == self._refused:
            return
        if self._subscriber is not None:
            if self._subscriber.endpoint == endpoint:
                return
            await self.stop()
        try:
            self._subscriber = KVEventSubscriber(endpoint, self._take, self._bus_lost)
        except ConfigError as error:
            self._refused, self.problem = endpoint, str(error)
            self.follower.lost(Doubt.NO_EVENTS)
            log.warning("instance %s is not located: %s", self.name, error)
            return
        self._subscriber.start()

    def _take(self, batch: Batch) -> None:
        self.follower.take(batch, _now())

    def _bus_lost(self) -> None:
        self.follower.lost(Doubt.BUS_LOST)

    async def _resync(self, now: float) -> None:
        life = self.follower.begin(now)
        try:
            snapshot = await self._ask("")
        except BaseException:
            self.follower.failed()
            raise
        for _ in self.follower.restore(life, snapshot, now):
            await asyncio.sleep(0)  # requests go on between two slices

    async def _ask(self, query: str) -> Snapshot:
        """Raises `Unavailable` where the instance does not answer as the plugin does."""
        answer = await self.instance.control.request(
            "GET",
            f"/v1/scopekv/snapshot{query}",
            self.instance.headers(),
            b"",
            timeout_seconds=SNAPSHOT_SECONDS_MAX,
        )
        async with answer:
            content = await answer.read(SNAPSHOT_BYTES_MAX)
        if answer.status != 200:
            raise Unavailable(f"the engine answered /v1/scopekv/snapshot with {answer.status}")
        try:
            told = decode_snapshot(content)
        except Misuse as error:
            raise Unavailable(f"the engine's snapshot is not one: {error}") from error
        self._tiers = told.tiers
        self._index.told(self.name, told.tiers)
        return told

    def there(self, reach: Reach, block_tokens: int) -> CachedThere:
        """What a reach is worth here: tokens in memory, runs at the speeds last told."""
        tokens, tiers = reach.host * block_tokens, self._tiers
        if tiers is None:
            return CachedThere(tokens)
        speeds = {tier.medium: tier.speed for tier in tiers.nearest}
        runs = tuple(Run(speeds[medium], chunks) for medium, chunks in reach.tiers)
        return CachedThere(tokens, runs, tiers.chunk_tokens, tiers.chunk_bytes)


class IndexLocator:
    """A `gateway.routing.Locator` over all instances of a fleet. Use: `start`, then `stop`.

    `endpoints`: where instances publish their events, by name, for those whose plugin does not say.
    """

    def __init__(
        self,
        fleet: Fleet,
        issuer: Issuer,
        *,
        endpoints: Mapping[str, str] | None = None,
        bytes_max: int = BYTES_MAX,
    ) -> None:
        self.index = LocationIndex(bytes_max)
        self.feeds: dict[str, Feed] = {}
        self._fleet = fleet
        self._endpoints = endpoints or {}
        self._hashes = PromptHashes(issuer)
        self._memory = NullLocator()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._keeper: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Follow every instance from now on, those too that come later."""
        self._keeper = asyncio.create_task(self._keep())

    async def stop(self) -> None:
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        for name in list(self.feeds):
            await self._end(name)

    def locate(
        self, asked: Asked, marked: Sequence[Mark], instances: Sequence[Instance]
    ) -> Mapping[str, CachedThere | None]:
        """What each instance has of a prompt, by name; None for one whose view is unsure.

        Cost: hashing the prompt once for each way of hashing, and a look-up a block.
        """
        found: dict[str, CachedThere | None] = {}
        groups: dict[Hashing, list[str]] = {}
        remembered: list[Instance] = []
        for instance in instances:
            name = instance.address.name
            feed = self.feeds.get(name)
            if asked.tokens is None or feed is None or not feed.publishes:
                remembered.append(instance)
            elif feed.sure and feed.hashing is not None:
                groups.setdefault(feed.hashing, []).append(name)
                found[name] = CachedThere(0)
            else:
                found[name] = None
        if len(remembered) == len(instances):
            return self._memory.locate(asked, marked, remembered)
        if remembered:
            found |= self._memory.locate(asked, marked, remembered)
        for hashing, names in groups.items():
            chain = self._hashes.chain(asked, hashing)
            size = hashing.block_size
            for name, reach in self.index.locate(chain, names, size).items():
                found[name] = self.feeds[name].there(reach, size)
        return found

    def sent(self, marked: Sequence[Mark], instance: Instance) -> None:
        """Remembered, for instances without events and prompts whose tokens are not known."""
        self._memory.sent(marked, instance)

    def forget(self, name: str) -> None:
        """An instance was restarted, or it left. One that is known in its new life stays known."""
        self._memory.forget(name)
        feed = self.feeds.get(name)
        if feed is not None:
            if feed.instance.lived:
                feed.follower.named(feed.instance.lived)
            else:
                feed.follower.lost(Doubt.UNREACHABLE)

    def report(self) -> dict[str, dict[str, object]]:
        """Each instance's state for an operator: counts and reasons, nothing of any prompt."""
        return {
            name: {
                "sure": feed.sure,
                "doubt": feed.follower.doubt,
                "problem": feed.problem,
                **feed.follower.counts,
            }
            for name, feed in self.feeds.items()
        }

    async def _keep(self) -> None:
        """Follow who came, leave who went, tidy the index."""
        while True:
            present = {i.address.name: i for i in self._fleet.instances}
            for name, feed in list(self.feeds.items()):
                if present.get(name) is not feed.instance:
                    await self._end(name)
            for name, instance in present.items():
                if name not in self.feeds:
                    feed = Feed(self.index, instance, self._endpoints.get(name))
                    self.feeds[name] = feed
                    self._tasks[name] = asyncio.create_task(self._follow(feed))
            more = self.index.tidy()
            await asyncio.sleep(TICK_SECONDS if more else IDLE_TICK_SECONDS)

    async def _follow(self, feed: Feed) -> None:
        while True:
            try:
                await feed.step(self._hashes)
            except ScopeKVError:
                pass  # the fleet finds out what ails it; a doubt stays a doubt
            except Exception as error:  # noqa: BLE001 - following must outlive what it meets
                log.error("instance %s: unexpected %s", feed.name, type(error).__name__)
                feed.follower.lost(Doubt.UNREACHABLE)
            await asyncio.sleep(TICK_SECONDS if feed.publishes else IDLE_TICK_SECONDS)

    async def _end(self, name: str) -> None:
        task = self._tasks.pop(name)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await self.feeds.pop(name).stop()
        self.index.leave(name)


def _now() -> float:
    return asyncio.get_running_loop().time()
