"""Laws of following: the index is what the engine holds, or the instance is unsure (R3, R4).

A failing seed is the whole report: `pytest tests/laws/test_following.py -k "[SEED]"` replays it.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest

from scopekv.adapters.kv_events import decode_batch
from scopekv.core.block_hashes import short
from scopekv.core.events import Medium, decode_snapshot
from scopekv.core.following import Doubt, Follower
from scopekv.core.locations import LocationIndex
from scopekv.ports import ObjectKey
from scopekv.simulate.events import EventBus, Unreliable
from scopekv.simulate.prefix_cache import PrefixCache
from scopekv.store.residents import Residents

SEEDS = (1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3, 5, 8, 13, 21, 34)))


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


@pytest.mark.parametrize("seed", SEEDS)
def test_r3_r4_the_index_equals_the_engine_after_10000_mixed_operations(seed: int) -> None:
    world = World(seed)
    for _ in range(10_000):
        world.step()
        world.index.tidy()
    assert world.way.lost > 50, "the positive control: batches were lost"
    counts = world.follower.counts
    for event in ("gaps", "restarts", "repeated", "snapshots"):
        assert counts[event] > 0, event
    world.settle()
    assert world.follower.sure
    assert world.exact()
    for medium, disk in world.disks.items():
        assert world.index.contents("a", medium) == Counter(disk.residents.all().values())
        assert max(world.index.contents("a", medium).values()) == 2


@pytest.mark.parametrize("seed", SEEDS)
def test_without_loss_the_index_is_exact_whenever_it_is_sure(seed: int) -> None:
    """All batches arrive, late or twice, and no life ends: sure means equal, at every moment."""
    world = World(seed, loses=0.0)
    sure = 0
    for _ in range(1_500):
        world.now += 0.01
        world.dice.choice(list(world.disks.values())).step()
        roll = world.dice.random()
        if roll < 0.8:
            world.prompt()
        elif roll < 0.98:
            world.remove()
            world.bus.flush()
        else:
            world.bus.reset(host=world.dice.random() < 0.5)
            world.bus.flush()
        if world.follower.due(world.now):
            world.snapshot()
            world.bus.flush()
        if world.follower.sure and world.follower.next_sequence == world.bus.sequence:
            sure += 1
            assert world.exact()
    assert sure > 100, "the positive control: it was sure at times"


def test_r3_a_restart_in_place_forgets_the_old_blocks_at_once() -> None:
    world = World(0, loses=0.0)
    world.way.delays = world.way.repeats = 0.0
    for _ in range(20):
        world.now += 1
        world.prompt()
    assert world.follower.sure
    assert world.index.size("a", Medium.ENGINE) > 10
    world.restart()
    world.now += 20
    world.engine.prefill([1, 2, 3], world.engine.hashes([1, 2, 3], lambda *_: ()))
    world.bus.flush()
    assert world.follower.sure, "batch 0 of a new life says all there is"
    assert world.exact()
    assert world.index.size("a", Medium.ENGINE) == 1


def test_r3_what_lies_on_disk_is_announced_anew_in_the_next_life() -> None:
    world = World(0, loses=0.0)
    world.way.delays = world.way.repeats = 0.0
    disk = world.disks[Medium.DIRECTORY].residents
    disk.put(ObjectKey("folder", "kept"), 5)
    world.prompt()
    world.restart()
    world.now += 20
    world.prompt()
    assert world.follower.sure
    assert world.exact()
    assert world.index.contents("a", Medium.DIRECTORY) == {5: 1}


def test_r4_a_lost_event_makes_the_instance_unsure_until_a_snapshot() -> None:
    world = World(0, loses=0.0)
    world.way.delays = world.way.repeats = 0.0
    for _ in range(5):
        world.now += 1
        world.prompt()
    world.way.loses = 1.0
    world.remove()
    world.bus.flush()
    world.way.loses = 0.0
    world.now += 1
    world.remove()
    world.bus.flush()
    assert world.follower.doubt is Doubt.GAP
    world.settle()
    assert world.follower.sure
    assert world.exact()


def test_r4_a_batch_lost_at_the_end_is_found_by_the_heartbeat() -> None:
    world = World(0, loses=0.0)
    world.way.delays = world.way.repeats = 0.0
    for _ in range(5):
        world.now += 1
        world.prompt()
    world.way.loses = 1.0
    world.remove()
    world.bus.flush()
    assert world.follower.sure, "nobody can know yet"
    world.settle()
    assert world.follower.counts["snapshots"] == 1
    assert world.exact()


def test_r3_a_batch_of_an_old_life_that_comes_late_changes_nothing() -> None:
    world = World(0, loses=0.0)
    world.way.delays = world.way.repeats = 0.0
    old: list[tuple[int, bytes]] = []
    world.bus.deliver[:] = [lambda *batch: old.append(batch)]
    for _ in range(3):
        world.now += 1
        world.prompt()
    world.restart()
    world.bus.deliver[:] = [world.way]
    world.now += 1
    world.prompt()
    assert world.follower.next_sequence == 1
    for number, payload in old:  # one of them has the very number that is expected
        world.arrives(number, payload)
    assert world.exact()
    world.now += 1
    world.prompt()
    assert world.follower.sure
    assert world.exact()


def test_r4_a_clock_set_back_between_two_lives_costs_snapshots_alone() -> None:
    """Batches of the old life that are kept, and newer by the clock than all of the new one."""
    world = World(0, loses=0.0)
    world.way.delays = world.way.repeats = 0.0
    for _ in range(6):
        world.now += 1
        world.prompt()
    world.follower.lost(Doubt.BUS_LOST)
    for _ in range(3):
        world.now += 1
        world.prompt()
    world.restart()
    world.now -= 5
    snapshot = decode_snapshot(world.bus.snapshot(world.instance, blocks=True))
    for _ in world.follower.restore(world.follower.begin(world.now), snapshot, world.now):
        pass
    assert world.follower.sure, "what came before it was asked for waits for nothing"
    world.now += 0.5
    world.prompt()
    assert world.follower.sure
    assert world.exact()


def test_r3_a_first_batch_of_an_old_life_that_comes_late_is_found_out() -> None:
    """It is taken for a new life's, and the heartbeat gives that life the name of the next one."""
    world = World(0, loses=0.0)
    world.way.delays = world.way.repeats = 0.0
    world.follower.lost(Doubt.BUS_LOST)
    world.prompt()  # batch 0, read only after the engine was gone
    world.restart()
    world.follower.heard(world.instance, 0, world.now)
    assert not world.exact(), "the positive control"
    world.now += 60
    assert world.follower.due(world.now)
    world.settle()
    assert world.follower.sure
    assert world.exact()
