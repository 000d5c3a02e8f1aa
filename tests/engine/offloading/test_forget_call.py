"""`POST /v1/scopekv/forget`: what an audit of one tier alone needs, and no more than that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from scopekv.engines.vllm.engine_calls import EngineSide
from tests.engine.offloading.conftest import Build
from tests.engine.offloading.parts import CHUNK_TOKENS

if TYPE_CHECKING:
    from tests.engine.offloading.world import World

pytestmark = pytest.mark.engine


def lines(answer: dict[str, Any]) -> dict[str, tuple[int, int]]:
    return {line["tier"]: (line["removed"], line["busy"]) for line in answer["lines"]}


def test_it_drops_the_copies_it_names_and_outer_tiers_lose_nothing(world: World) -> None:
    side = EngineSide(world.core, world.guard)
    asked = world.ask("u", 4)
    world.cache(asked)
    assert world.copy_out(asked) == 4
    world.settle()
    world.finish(asked)
    kept = set(world.stores[0].stored)
    assert len(kept) == 4
    assert lines(side.call("forget", (["engine"], None, 60.0))) == {"engine": (4, 0)}
    assert not world.cached(asked)
    assert len(world.policy.held()) == 4
    assert lines(side.call("forget", (["host"], None, 60.0))) == {"host": (4, 0)}
    assert not world.policy.held()
    assert set(world.stores[0].stored) == kept
    world.known_speeds()
    again = world.ask("u", 4)
    assert world.answer(again) == 4, "found again in the outer tier"


def test_a_block_in_use_stays_and_is_counted_busy(world: World) -> None:
    side = EngineSide(world.core, world.guard)
    asked = world.ask("u", 4)
    held = world.pool.get_new_blocks(4)
    world.pool.cache_full_blocks(asked.request, held, 0, 4, CHUNK_TOKENS, 0)
    assert lines(side.forget(["engine"], None, 60.0)) == {"engine": (0, 4)}
    assert len(world.cached(asked)) == 4
    world.pool.free_blocks(reversed(held))
    assert lines(side.forget(["engine"], None, 60.0)) == {"engine": (4, 0)}


def test_pinned_documents_stay_pinned_and_cached(world: World) -> None:
    side = EngineSide(world.core, world.guard)
    tokens = list(range(4 * CHUNK_TOKENS + 1))
    end = 4 * CHUNK_TOKENS
    document = world.document("u", "d", tokens, end)
    world.cache(document)
    assert side.pin("d", world.ticket("u", "d", tokens, end), tokens)["held"] == 4
    free = world.pool.get_num_free_blocks()
    assert lines(side.forget(["engine", "host"], None, 60.0)) == {"engine": (0, 0), "host": (0, 0)}
    assert len(world.cached(document)) == 4
    assert world.pool.get_num_free_blocks() == free
    assert side.unpin("d") == {"released": 4}


def test_a_tier_that_is_not_read_has_nothing_until_it_is_read_again(make: Build) -> None:
    world = make(stores=2)
    world.lease("u")
    world.stored("u", 4)
    side = EngineSide(world.core, world.guard)
    world.known_speeds()
    side.forget([], [], 60.0)
    assert world.answer(world.ask("u", 4)) == 0
    side.forget([], None, 60.0)
    assert world.answer(world.ask("u", 4)) == 4


def test_a_tier_is_read_again_when_its_time_is_over(world: World) -> None:
    world.stored("u", 4)
    side = EngineSide(world.core, world.guard)
    world.known_speeds()
    side.forget([], [], 1e-9)
    assert world.answer(world.ask("u", 4)) == 4


def test_a_tier_that_is_read_alone_is_read_though_it_does_not_pay(world: World) -> None:
    world.stored("u", 4)
    side = EngineSide(world.core, world.guard)
    world.known_speeds()
    for _ in range(50):  # computing is next to free now
        world.manager.planner.observe(0, 1000, 1e-6)
    assert world.answer(world.ask("u", 4)) == 0
    side.forget([], [world.manager.secondary_tiers[0].medium_name], 60.0)
    assert world.answer(world.ask("u", 4)) == 4
