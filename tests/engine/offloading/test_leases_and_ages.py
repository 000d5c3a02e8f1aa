"""What ends with time at the engine: leases, and blocks whatever holds them up."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from scopekv.core.chains import Link
from scopekv.engines.vllm.purge import UNLEASED_SECONDS
from tests.engine.offloading.conftest import Build
from tests.engine.offloading.parts import scope
from tests.engine.offloading.test_forgetting import U, nothing_is_left, purged

if TYPE_CHECKING:
    from tests.engine.offloading.world import World

pytestmark = pytest.mark.engine


def test_leases_that_are_over_leave_an_engine_without_outer_tiers(make: Build) -> None:
    world = make(stores=0)
    world.lease("u", at_once=False)
    keyring, lease = world.guard.keyring, world.leases.by_scope[scope("u")]
    assert keyring is not None
    keyring.accept([lease], time.monotonic() - lease.lease_seconds)
    world.purger.expire()
    assert not keyring._held, "its key is in memory no longer than it counts"


def test_what_is_busy_when_its_time_is_over_is_found_again(world: World) -> None:
    asked = world.ask("u", 4)
    world.copy_out(asked)
    world.settle()
    world.finish(asked)
    world.settle()
    chunks = [world.policy.get(key) for key in world.policy.held()]
    for chunk in chunks:
        chunk.ref_cnt += 1  # the engine loads it just now
    world.age(UNLEASED_SECONDS + 1)
    lines = {line["tier"]: line["busy"] for line in world.purger.expire()["lines"]}
    assert lines["host"] == 4
    for chunk in chunks:
        chunk.ref_cnt -= 1
    purged(world)
    assert nothing_is_left(world)


def test_a_purge_ends_leases_in_an_engine_without_outer_tiers(make: Build) -> None:
    world = make(stores=0)
    world.lease("u")
    world.lease("v")
    keyring = world.guard.keyring
    assert keyring is not None
    world.purger.purge(U)
    assert keyring.chain((Link(scope("u"), 0),)) is None
    assert keyring.chain((Link(scope("v"), 0),)) is not None


def test_the_time_that_the_machine_slept_counts_as_age(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = world.ask("u", 4)
    world.cache(asked)
    world.finish(asked)
    clock, asleep = time.clock_gettime, {time.CLOCK_BOOTTIME: 3601.0}
    monkeypatch.setattr(time, "clock_gettime", lambda one: clock(one) + asleep.get(one, 0.0))
    world.purger.expire()
    assert not world.cached(asked)
