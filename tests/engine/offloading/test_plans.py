"""What a request waits for, for how long, and from where its blocks come."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scopekv.core.chains import Link
from scopekv.core.fetching import stalled
from tests.engine.offloading.conftest import Build
from tests.engine.offloading.parts import CHUNK_TOKENS, Counted, scope, until

if TYPE_CHECKING:
    from tests.engine.offloading.world import Asked, World

pytestmark = pytest.mark.engine

SIZES = (4, 60, 187)
CHAIN = (Link(scope("u"), 0),)


def plan_of(world: World, asked: Asked) -> tuple[int, int] | None:
    """(blocks, tokens that it takes as cached) of a request's plan."""
    made = world.manager.requests[asked.request.request_id].plan
    return None if made is None else (made.blocks, made.demand.cached_tokens)


@pytest.mark.parametrize("blocks", SIZES)
def test_a_plan_begins_at_the_start_when_a_tier_answers_in_the_middle_of_a_scan(
    make: Build, blocks: int
) -> None:
    world = make(chunks=200, shared=True)
    world.lease("u")
    world.stored("u", blocks)
    world.known_speeds()
    world.forget_presence()
    world.stores[0].hang("present")
    asked = world.ask("u", blocks)
    assert world.look(asked) == (None, ["RETRY", "MISS"])
    world.step()
    assert world.manager.lookup(asked.keys[0], asked.context).name == "RETRY"
    world.stores[0].resume()
    until(lambda: len(world.tiers[0].sealed._parts.index) == blocks, "the tier's answer")
    assert world.manager.lookup(asked.keys[1], asked.context).name == "MISS"
    assert plan_of(world, asked) is None
    world.step()
    assert world.answer(asked) == blocks
    assert plan_of(world, asked) == (blocks, 0)


@pytest.mark.parametrize("blocks", SIZES)
def test_a_plan_begins_at_the_start_when_a_key_comes_in_the_middle_of_a_scan(
    make: Build, blocks: int
) -> None:
    world = make(chunks=200)
    world.lease("u")
    world.stored("u", blocks)
    world.known_speeds()
    world.forget_leases()
    world.leases.open.clear()
    asked = world.ask("u", blocks)
    assert world.look(asked) == (None, ["RETRY", "MISS"])
    world.step()
    assert world.manager.lookup(asked.keys[0], asked.context).name == "RETRY"
    world.leases.open.set()
    keyring = world.guard.keyring
    assert keyring is not None
    until(lambda: keyring.chain(CHAIN) is not None, "the lease")
    assert world.manager.lookup(asked.keys[1], asked.context).name == "MISS"
    assert plan_of(world, asked) is None
    world.step()
    assert world.answer(asked) == blocks
    assert plan_of(world, asked) == (blocks, 0)


def test_a_late_answer_is_waited_for_no_longer_than_a_part_of_the_prefill(make: Build) -> None:
    world = make(shared=True)
    world.lease("u")
    world.stored("u", 8)
    world.known_speeds()
    world.forget_presence()
    world.stores[0].hang("present")
    asked = world.ask("u", 8)
    assert world.look(asked)[0] is None
    world.clock.now += world.manager.planner.patience_seconds(0, 8 * CHUNK_TOKENS)[1] + 0.001
    world.step()
    assert world.look(asked) == (0, ["MISS"])


def test_a_scan_that_begins_later_than_the_one_before_makes_a_plan_too(make: Build) -> None:
    """The engine's own cache may have grown meanwhile."""
    world = make(shared=True)
    world.lease("u")
    world.stored("u", 8)
    world.known_speeds()
    world.forget_presence()
    world.stores[0].hang("present")
    asked = world.ask("u", 8)
    assert world.look(asked)[0] is None
    world.step()
    world.stores[0].resume()
    until(lambda: len(world.tiers[0].sealed._parts.index) == 8, "the tier's answer")
    assert world.look(asked, 3)[1] == ["HIT_PENDING"] * 5
    assert plan_of(world, asked) == (5, 3 * CHUNK_TOKENS)


@pytest.mark.parametrize("owner", ["alive", "gone"])
def test_a_request_waits_for_anothers_fetch_within_its_own_patience(
    world: World, owner: str
) -> None:
    world.stored("u", 8)
    world.known_speeds()
    world.stores[0].hang("get")
    first = world.ask("u", 8)
    assert world.look(first)[1] == ["HIT_PENDING"] * 8
    world.step()
    second = world.ask("u", 8)
    assert world.look(second)[1] == ["HIT_PENDING"] * 8
    world.step()
    if owner == "gone":
        world.finish(first)
    patience = world.manager.planner.patience_seconds(0, second.request.num_prompt_tokens)[1]
    assert patience > 0
    world.clock.now += max(0.02, patience) - 0.001
    assert world.look(second)[1] == ["HIT_PENDING"] * 8
    world.clock.now += 0.002
    assert world.look(second) == (0, ["MISS"])
    assert world.host.lookup(second.keys[0], second.context).name == "HIT_PENDING"


@pytest.mark.parametrize("blocks", [20, 80])
def test_a_promotion_looks_at_no_more_positions_in_a_longer_prompt(
    make: Build, blocks: int
) -> None:
    world = make(chunks=100)
    world.lease("u")
    asked = world.ask("u", blocks)
    stored = asked.context._offload_key_positions = Counted(asked.context._offload_key_positions)
    stored.steps = 0
    assert world.copy_out(asked) == blocks
    assert stored.steps <= 8 * blocks
    world.settle()
    world.finish(asked)
    world.manager.reset_cache()
    world.known_speeds()
    asked = world.ask("u", blocks)
    looked = asked.context._offload_key_positions = Counted(asked.context._offload_key_positions)
    looked.steps = 0
    assert world.look(asked)[1] == ["HIT_PENDING"] * blocks
    world.step()
    assert looked.steps <= 8 * blocks


def test_progress_of_a_second_tier_counts_for_a_stall_of_the_first(make: Build) -> None:
    world = make(stores=2)
    world.lease("u")
    world.stored("u", 20)
    world.known_speeds()
    asked = world.ask("u", 20)
    world.forget_blocks(0, asked.hashes[10:])
    world.stores[0].hang("get")
    world.look(asked)
    mine = world.manager.requests[asked.request.request_id]
    assert mine.fetched == {"tier0": 10, "tier1": 10}
    world.step()

    def second_is_done() -> bool:
        world.step()
        return len(world.manager._jobs) == 1

    until(second_is_done, "the second tier's job")
    plan = mine.plan
    assert plan is not None
    spent = next(ms / 1000 for ms in range(10_000) if stalled(ms / 1000, 0, plan))
    assert not stalled(spent, 10, plan)
    world.clock.now += spent
    world.step()
    assert not mine.given_up
    world.clock.now += plan.limit_seconds
    world.step()
    assert mine.given_up
    assert world.answer(asked) == 0


def test_what_a_failed_promotion_promised_is_a_miss_for_all_who_wait(make: Build) -> None:
    world = make(stores=2)
    world.lease("u")
    world.stored("u", 4)
    world.known_speeds()
    world.stores[0].conduct.flip_reads = True
    first, second = world.ask("u", 4), world.ask("u", 4)
    assert world.look(first)[1] == ["HIT_PENDING"] * 4
    assert world.look(second)[1] == ["HIT_PENDING"] * 4
    world.settle()
    assert not world.policy.held()
    assert world.answer(second) == 4
    assert world.answer(first) == 4
    mine = world.manager.requests[first.request.request_id]
    other = world.manager.requests[second.request.request_id]
    assert (other.fetched, other.replans) == ({"tier1": 4}, 0)
    assert (mine.fetched, mine.replans) == ({"tier0": 4}, 0)


def test_a_failed_promotion_is_tried_again_from_the_next_tier(make: Build) -> None:
    world = make(stores=2)
    world.lease("u")
    world.stored("u", 4)
    world.known_speeds()
    world.stores[0].conduct.flip_reads = True
    asked = world.ask("u", 4)
    assert world.answer(asked) == 4
    mine = world.manager.requests[asked.request.request_id]
    assert (mine.fetched, mine.replans) == ({"tier0": 4, "tier1": 4}, 1)


def test_a_promotion_that_always_fails_is_tried_at_most_once_more_a_tier(make: Build) -> None:
    world = make(stores=2)
    world.lease("u")
    world.stored("u", 4)
    world.known_speeds()
    for tier in world.tiers:  # it says that it has the blocks, whatever becomes of a load
        tier.sealed.load = lambda job_id, blocks, tier=tier: (  # type: ignore[misc, method-assign]
            tier.sealed._parts.board.close(tier.sealed._open_job(job_id, blocks, [None] * 4))
        )
    asked = world.ask("u", 4)
    assert world.answer(asked) == 0
    mine = world.manager.requests[asked.request.request_id]
    assert mine.replans <= 2
    assert sum(mine.fetched.values()) <= 3 * 4


def test_the_last_block_of_a_prompt_is_taken_from_no_tier(world: World) -> None:
    world.stored("u", 4)
    world.known_speeds()
    asked = world.ask("u", 4, more=0)
    assert world.answer(asked) == 3
    assert world.manager.requests[asked.request.request_id].fetched == {"tier0": 3}
    world.copy_out(asked)
    assert world.host.lookup(asked.keys[3], asked.context).name == "HIT"
    assert world.look(asked) == (3, ["HIT", "HIT", "HIT", "MISS"])
    world.settle()


def test_a_request_without_a_ticket_stores_nothing_and_reads_nothing(make: Build) -> None:
    world = make(shared=True)
    world.lease("u")
    world.stored("u", 4)
    before = list(world.stores[0].calls)
    asked = world.ask(None, 4)
    assert world.look(asked) == (0, ["MISS"])
    assert plan_of(world, asked) is None
    assert world.copy_out(asked) == 0
    world.settle()
    assert not world.policy.held()
    done = world.stores[0].calls[len(before) :]
    assert not [call for call, _ in done if call in ("get", "put", "present")]


def test_a_model_with_several_groups_writes_and_reads_no_outer_tier(world: World) -> None:
    """Its blocks come in sets, of which a plan would count and fetch one part."""
    world.stored("u", 4)
    world.known_speeds()
    world.manager._groups = 2
    before = len(world.stores[0].stored)
    again = world.ask("u", 4)
    assert world.answer(again) == 0
    other = world.ask("u", 4, first=5000)
    assert world.copy_out(other) == 4
    world.settle()
    assert len(world.stores[0].stored) == before == 4
