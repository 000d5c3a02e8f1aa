"""What a gateway may ask of an engine: its self-check, and pins within their share."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from scopekv.engines.vllm.engine_calls import EngineSide
from tests.engine.offloading.parts import CHUNK_TOKENS

if TYPE_CHECKING:
    from tests.engine.offloading.world import World

pytestmark = pytest.mark.engine

END = 4 * CHUNK_TOKENS


def test_the_self_check_sees_blocks_that_can_meet_and_counts_no_request(world: World) -> None:
    caching = SimpleNamespace(enable_prefix_caching=True)
    world.core.vllm_config = SimpleNamespace(cache_config=caching)
    side, before = EngineSide(world.core, world.guard), world.guard.counts.copy()
    assert side.self_check() == "ok"
    assert world.guard.counts == before
    world.core.request_block_hasher = lambda _request: [bytes(32)]
    assert "can meet" in side.self_check()
    world.core.request_block_hasher = lambda _request: []
    assert "can meet" in side.self_check()
    caching.enable_prefix_caching = False
    assert side.self_check() == "prefix caching is off"


def test_pins_take_no_more_than_their_share(world: World) -> None:
    share = 6.5 / world.pool.num_gpu_blocks
    world.guard.settings = replace(world.guard.settings, pinned_share_max=share)
    side = EngineSide(world.core, world.guard)
    prompts = [list(range(start, start + END + 1)) for start in (0, 5000, 9000)]
    for tokens in prompts:
        world.cache(world.document("u", "d", tokens, END))
    held = [
        side.pin(f"{number}", world.ticket("u", "d", tokens, END), tokens)
        for number, tokens in enumerate(prompts)
    ]
    assert [(one["held"], one["missing"]) for one in held] == [(4, 0), (2, 2), (0, 4)]
    again = side.pin("0", world.ticket("u", "d", prompts[0], END), prompts[0])
    assert again["held"] == 4, "what it holds itself leaves it room"
    assert [side.unpin(f"{number}")["released"] for number in range(3)] == [4, 2, 0]


def test_a_model_with_several_groups_pins_nothing(world: World) -> None:
    tokens = list(range(END + 1))
    world.cache(world.document("u", "d", tokens, END))
    world.core.scheduler.kv_cache_config.kv_cache_groups = [None, None]
    side = EngineSide(world.core, world.guard)
    answer = side.pin("d", world.ticket("u", "d", tokens, END), tokens)
    assert (answer["held"], "one KV cache group" in answer["error"]) == (0, True)
