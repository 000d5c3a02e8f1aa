"""Laws of following: the index is what the engine holds, or the instance is unsure (R3, R4).

A failing seed is the whole report: `pytest tests/laws/test_following.py -k "[SEED]"` replays it.
"""

from __future__ import annotations

from collections import Counter

import pytest

from scopekv.core.events import Medium, decode_snapshot
from scopekv.core.following import Doubt
from scopekv.ports import ObjectKey
from tests.laws.following_world import World

SEEDS = (1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3, 5, 8, 13, 21, 34)))
LIVES = (
    (1, 2500),
    *(pytest.param(seed, 10_000, marks=pytest.mark.slow) for seed in (1, 2, 3, 5, 8, 13, 21, 34)),
)


@pytest.mark.parametrize(("seed", "operations"), LIVES)
def test_r3_r4_the_index_equals_the_engine_after_mixed_operations(
    seed: int, operations: int
) -> None:
    world = World(seed)
    for _ in range(operations):
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
