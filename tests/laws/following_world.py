"""An engine whose events may be lost, and the index that follows it."""

from __future__ import annotations

import random
from collections import Counter

from scopekv.adapters.kv_events import decode_batch
from scopekv.core.block_hashes import short
from scopekv.core.events import Medium, decode_snapshot
from scopekv.core.following import Follower
from scopekv.core.locations import LocationIndex
from scopekv.ports import ObjectKey
from scopekv.simulate.events import EventBus, Unreliable
from scopekv.simulate.prefix_cache import PrefixCache
from scopekv.store.residents import Residents


class Disk:
    """An outer tier by its residents alone: objects come, go, and outlive the engine."""

    def __init__(self, dice: random.Random) -> None:
        self.residents, self._dice = Residents(), dice

    def step(self) -> None:
        """A worker or the janitor does something, between any two steps of the engine."""
        for _ in range(self._dice.randrange(6)):
            number = self._dice.randrange(200)
            key = ObjectKey("folder", str(number))
            if self._dice.random() < 0.6:
                self.residents.put(key, number // 2)  # some blocks twice, under two names
            else:
                self.residents.drop(key)


class World:
    """An engine with host memory and two tiers, its bus, one follower behind a bad delivery."""

    def __init__(self, seed: int, *, loses: float = 0.02) -> None:
        self.dice = random.Random(seed)
        self.index = LocationIndex()
        self.follower = Follower(self.index, "a")
        self.now = 0.0
        self.life = 0
        self.bus = EventBus(lambda: 1000.0 + self.now)
        self.engine = PrefixCache(block_size=2, blocks_max=40)
        self.host = PrefixCache(block_size=2, blocks_max=90)
        self.bus.watch(self.engine, Medium.ENGINE)
        self.bus.watch(self.host, Medium.HOST)
        self.disks = {medium: Disk(self.dice) for medium in (Medium.DIRECTORY, Medium.S3)}
        for medium, disk in self.disks.items():
            self.bus.watch_tier(disk.residents, medium)
        self.way = Unreliable(self.arrives, self.dice, loses=loses, repeats=0.05, delays=0.05)
        self.bus.deliver.append(self.way)
        self.copied = 0

    @property
    def instance(self) -> str:
        return f"life-{self.life}"

    def arrives(self, number: int, payload: bytes) -> None:
        self.follower.take(decode_batch(number, payload), self.now)

    def prompt(self) -> None:
        family = self.dice.randrange(12)
        ids = [family * 1000 + i for i in range(self.dice.randrange(2, 40))]
        hashes = self.engine.hashes(ids, lambda *_: (("scopekv", str(family % 3)),))
        self.engine.prefill(ids, hashes)
        if self.dice.random() < 0.5:
            self.host.prefill(ids, hashes)
        self.bus.flush()

    def remove(self) -> None:
        for cache in (self.engine, self.host):
            held = cache.all()
            if held:
                cache.remove(self.dice.sample(held, min(3, len(held))))
        if self.dice.random() < 0.5:
            self.bus.flush()

    def restart(self) -> None:
        self.engine.clear()
        self.host.clear()
        self.bus.restart()
        self.life += 1
        if self.dice.random() < 0.5:
            self.way.settle()  # stragglers of the old life

    def snapshot(self) -> None:
        """One that takes a while: things happen before the engine answers, and after."""
        life = self.follower.begin(self.now)
        self.some()
        if self.dice.random() < 0.1:
            self.follower.failed()
            return
        packed = self.bus.snapshot(self.instance, blocks=True)
        self.some()
        slices = self.follower.restore(life, decode_snapshot(packed), self.now)
        for _ in slices:
            self.some()

    def some(self) -> None:
        for _ in range(self.dice.randrange(3)):
            self.step(nested=True)

    def step(self, *, nested: bool = False) -> None:
        self.now += self.dice.choice((0.001, 0.01, 0.1))
        self.dice.choice(list(self.disks.values())).step()
        roll = self.dice.random()
        if roll < 0.75:
            self.prompt()
        elif roll < 0.93:
            self.remove()
        elif roll < 0.94:
            self.bus.reset(host=self.dice.random() < 0.5)
        elif roll < 0.95:
            self.restart()
        elif roll < 0.99:
            heard = decode_snapshot(self.bus.snapshot(self.instance, blocks=False))
            self.follower.heard(heard.instance, heard.sequence, self.now)
        elif not nested:
            self.snapshot()
        if not nested and self.follower.due(self.now):
            self.snapshot()

    def settle(self) -> None:
        """No more faults: what is late arrives, hearts are heard, snapshots come."""
        self.way.loses = self.way.delays = self.way.repeats = 0.0
        self.way.settle()
        for _ in range(6):
            self.now += 2.0
            heard = decode_snapshot(self.bus.snapshot(self.instance, blocks=False))
            self.follower.heard(heard.instance, heard.sequence, self.now)
            self.now += 2.0
            if self.follower.due(self.now):
                life = self.follower.begin(self.now)
                packed = decode_snapshot(self.bus.snapshot(self.instance, blocks=True))
                for _ in self.follower.restore(life, packed, self.now):
                    pass

    def truth(self, medium: Medium) -> Counter[int]:
        """Of an outer tier: what was told of it, for its workers never rest."""
        if medium in self.disks:
            return Counter(self.disks[medium].residents.told())
        cache = self.engine if medium is Medium.ENGINE else self.host
        return Counter(short(one) for one in cache.all())

    def exact(self) -> bool:
        return all(
            self.index.contents("a", medium) == self.truth(medium)
            for medium in (Medium.ENGINE, Medium.HOST, *self.disks)
        )
