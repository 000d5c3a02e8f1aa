"""Jobs of a tier: every one is reported, and nothing that goes wrong in one ends the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.engine.offloading.conftest import Build
from tests.engine.offloading.parts import until

if TYPE_CHECKING:
    from tests.engine.offloading.world import World

pytestmark = pytest.mark.engine


def test_a_reset_with_open_jobs_reports_every_job(world: World) -> None:
    world.stores[0].hang("put")
    asked = world.ask("u", 8)
    world.copy_out(asked)
    until(lambda: world.stores[0].waiting, "a put that hangs")
    assert world.manager._jobs
    world.manager.reset_cache()
    assert not world.manager._jobs
    assert not world.tiers[0]._jobs
    assert not world.policy.held()
    world.step()


def test_a_reset_during_a_fetch_writes_no_byte_afterwards(world: World) -> None:
    world.stored("u", 4)
    world.known_speeds()
    world.stores[0].hang("get")
    asked = world.ask("u", 4)
    world.look(asked)
    world.step()
    until(lambda: world.stores[0].waiting, "a get that hangs")
    world.manager.reset_cache()
    memory = world.host.get_kv_memoryview().cast("B")
    memory[:] = bytes(memory.nbytes)
    world.stores[0].resume()
    until(lambda: not world.stores[0].waiting, "the end of the get")
    world.settle()
    assert not any(memory)


def test_a_reset_leaves_no_state_of_finished_requests(world: World) -> None:
    for _ in range(5):
        asked = world.ask("u", 4)
        assert world.manager.prepare_store(asked.keys, asked.context).keys_to_store is not None
        world.finish(asked)
    assert world.manager.requests
    world.manager.reset_cache()
    assert not world.manager.requests
    assert not world.manager._req_state


def test_a_reset_lets_a_waiting_request_decide_anew(world: World) -> None:
    world.stored("u", 4)
    world.known_speeds()
    asked = world.ask("u", 4)
    world.look(asked)  # promised, but not begun
    world.manager.reset_cache()
    mine = world.manager.requests[asked.request.request_id]
    assert (mine.plan, mine.promised, mine.replans) == (None, set(), 0)
    assert world.answer(asked) == 4


def test_a_job_of_a_request_that_is_gone_is_a_miss(world: World) -> None:
    world.stored("u", 2)
    world.known_speeds()
    asked = world.ask("u", 2)
    assert world.look(asked)[1] == ["HIT_PENDING"] * 2
    world.finish(asked)
    world.settle()
    assert not world.policy.held()


def test_a_job_that_a_tier_refuses_is_a_miss_and_no_error(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.stored("u", 2)
    world.known_speeds()
    asked = world.ask("u", 2)
    world.look(asked)
    world.tiers[0]._flat = world.tiers[0]._flat[:100]  # slots of a wrong size
    world.step()
    assert world.answer(asked) == 0
    assert world.tiers[0]._refused == 2  # the second is the one retry
    assert caplog.text.count("made again") == 1
    world.tiers[0]._refused = 0


def test_a_report_of_a_job_that_nobody_knows_is_passed_over(world: World) -> None:
    tier = world.tiers[0]
    tier.sealed.store(99, [])
    until(lambda: not tier.sealed._parts.board.running(), "the end of the job")
    assert list(tier.get_finished_jobs()) == []


def test_a_key_that_is_offered_twice_is_held_once(world: World) -> None:
    asked = world.ask("u", 2)
    out = world.manager.prepare_store([asked.keys[0], asked.keys[0]], asked.context)
    assert set(out.keys_to_store) == {asked.keys[0]}
    world.manager.complete_store([asked.keys[0]], asked.context)
    world.settle()
    assert len(world.policy._policy) == len(world.policy.held()) == 1


def test_a_block_whose_place_in_its_prompt_is_not_known_is_kept_without_a_parent(
    world: World,
) -> None:
    asked = world.ask("u", 3)
    del asked.request.block_hashes[:]
    assert world.manager.place_of(asked.keys[2], asked.context)[1:] == (None, 2)
    assert world.copy_out(asked) == 3
    world.settle()


def test_a_prompt_without_tokens_has_no_plan_and_no_error(world: World) -> None:
    plan = world.manager.planner.plan(0, 96, [], [], 0)
    assert plan.blocks == 0


def test_two_tiers_report_each_their_own_jobs(make: Build) -> None:
    world = make(stores=2)
    world.lease("u")
    asked = world.ask("u", 3)
    world.copy_out(asked)
    world.settle()
    assert [len(store.stored) for store in world.stores] == [3, 3]
    assert set(world.manager.report()["tiers"]) == {"host", "tier0", "tier1"}
    assert not world.manager.get_stats().is_empty()
