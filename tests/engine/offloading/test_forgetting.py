"""Purges and retention at the engine: what is forgotten, what survives, and what it costs."""

from __future__ import annotations

import os
from threading import Thread
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import pytest

from scopekv.core.chains import Link, tag
from scopekv.core.reasons import TicketReason
from scopekv.engines.vllm import compat
from scopekv.engines.vllm.engine_calls import EngineSide
from scopekv.engines.vllm.purge import UNLEASED_SECONDS
from scopekv.errors import ConfigError
from tests.engine.offloading.conftest import Build
from tests.engine.offloading.parts import CHUNK_TOKENS, Counted, scope, until

if TYPE_CHECKING:
    from tests.engine.offloading.world import World

pytestmark = pytest.mark.engine

PAIRS = 20_000
U = [[scope("u").hex(), 0]]
TAGS = frozenset({tag(Link(scope("u"), 0))})
OURS = SimpleNamespace(
    kv_connector="ScopedConnector",
    kv_connector_module_path="scopekv.engines.vllm.offloading.connector",
    kv_connector_extra_config={},
)


def busy(world: World) -> dict[str, int]:
    return {line["tier"]: line["busy"] for line in world.purger.purge(U)["lines"]}


def purged(world: World) -> None:
    """Ask until a purge is done, a step between two."""

    def done() -> bool:
        world.step()
        return not any(busy(world).values())

    until(done, "the end of the purge")


def nothing_is_left(world: World) -> bool:
    blocks = world.guard.blocks
    assert blocks is not None
    stored = world.stores[0].stored
    return not world.policy.held() and not stored and not blocks.tagged(TAGS)


def test_a_purge_of_many_pairs_is_one_pass(world: World) -> None:
    guard = world.guard
    assert guard.blocks is not None
    assert guard.keyring is not None
    for _ in range(2000):
        guard.blocks.note([os.urandom(32)], 0, world.grants("u"))
    for letter in "abcdefghijklmnopqrst":
        world.lease(letter)
    fences = guard.fences._fences = Counted(guard.fences._fences)
    held = guard.keyring._held = Counted(guard.keyring._held)
    origins = guard.blocks._origins = Counted(guard.blocks._origins)
    fences.steps = held.steps = origins.steps = 0
    pairs = [[os.urandom(16).hex(), 0] for _ in range(PAIRS)]
    for again in (1, 2, 3):
        world.purger.purge(pairs)
        assert fences.steps <= again * (4 * PAIRS + 10)
        assert held.steps <= again * 4 * 21  # once for the engine, once for its tier
        assert origins.steps <= again * (2 * 2000 + 10)


def test_a_purge_is_busy_while_the_last_blocks_of_a_finished_request_may_be_stored(
    world: World,
) -> None:
    asked = world.ask("u", 4)
    world.finish(asked, finalize=False)
    for _ in range(3):
        world.step()
        assert busy(world)["engine"] == 1
    world.copy_out(asked)  # with the next step of vLLM
    world.finish(asked)
    purged(world)
    assert nothing_is_left(world)
    late = world.ask("u", 4)  # its ticket was minted before
    assert world.guard.counts[TicketReason.REVOKED] == 1
    assert world.copy_out(late) == 0
    world.settle()
    assert nothing_is_left(world)
    assert not any(busy(world).values())


def test_a_purge_is_busy_while_a_request_runs_and_takes_what_it_stored(world: World) -> None:
    asked = world.ask("u", 4)
    world.cache(asked)
    assert busy(world)["engine"] == 1
    assert not world.cached(asked)
    world.copy_out(asked)
    world.settle()
    assert busy(world)["engine"] == 1
    world.finish(asked)
    purged(world)
    assert nothing_is_left(world)
    assert not any(world.host.get_kv_memoryview().cast("B"))  # overwritten, not merely let go


def test_blocks_of_requests_that_wait_survive_the_ledgers_prune(world: World) -> None:
    blocks = world.guard.blocks
    assert blocks is not None
    waiting = world.request("u", range(5 * CHUNK_TOKENS))
    ending = world.ask("u", 5, first=5000)
    world.finish(ending, finalize=False)
    for _ in range(5 * world.pool.num_gpu_blocks):
        blocks.note([os.urandom(32)], 0, world.grants("u"))
    world.purger.expire()
    kept = {*waiting.block_hashes, *ending.request.block_hashes}
    assert set(blocks.tagged(TAGS)) == kept


@pytest.mark.parametrize("broker", [True, False])
def test_the_ledger_is_bounded_with_and_without_a_broker(make: Build, broker: bool) -> None:
    world = make(broker=broker, stores=int(broker))
    blocks = world.guard.blocks
    assert blocks is not None
    for _ in range(3):
        blocks.note([os.urandom(32) for _ in range(3000)], 0, world.grants("u"))
        world.purger.expire()
        assert len(blocks) <= 4 * world.pool.num_gpu_blocks


def test_without_a_broker_retention_is_the_safe_side(make: Build) -> None:
    world = make(broker=False, stores=0)
    asked = world.ask("u", 4)
    world.cache(asked)
    assert world.copy_out(asked) == 4
    world.finish(asked)
    world.age(UNLEASED_SECONDS - 60)
    world.purger.expire()
    assert len(world.cached(asked)) == len(world.policy.held()) == 4
    world.age(61)
    lines = world.purger.expire()["lines"]
    assert [(line["tier"], line["removed"]) for line in lines] == [("engine", 4), ("host", 4)]
    assert not world.cached(asked)
    assert not world.policy.held()
    assert world.guard.blocks is not None
    assert not len(world.guard.blocks)


def test_blocks_that_outlive_their_retention_in_a_running_request_are_found_again(
    world: World,
) -> None:
    asked = world.ask("u", 4)
    world.age(UNLEASED_SECONDS + 1)
    world.purger.expire()
    world.finish(asked, finalize=False)
    assert world.copy_out(asked) == 4
    world.finish(asked)
    world.settle()
    lines = {line["tier"]: line["removed"] for line in world.purger.expire()["lines"]}
    assert lines["host"] == 4
    assert not world.policy.held()


def test_expiry_gives_back_pins_whose_blocks_are_gone_and_says_which(world: World) -> None:
    side = EngineSide(world.core, world.guard)
    tokens = list(range(4 * CHUNK_TOKENS + 1))
    kept = list(range(7000, 7000 + 4 * CHUNK_TOKENS + 1))
    end = 4 * CHUNK_TOKENS
    world.cache(world.document("u", "d", tokens, end))
    world.age(UNLEASED_SECONDS + 1)
    world.cache(world.document("u", "d", kept, end))
    old = side.pin("old", world.ticket("u", "d", tokens, end), tokens)
    new = side.pin("new", world.ticket("u", "d", kept, end), kept)
    assert (old["held"], new["held"]) == (4, 4)
    free = world.pool.get_num_free_blocks()
    answer = side.call("expire", ())
    assert answer["unpinned"] == ["old"]
    assert world.pool.get_num_free_blocks() == free + 4
    assert side.call("expire", ())["unpinned"] == []
    assert side.unpin("new") == {"released": 4}


@pytest.mark.parametrize("version", ["0.31.4", "0.33.0"])
def test_tiers_are_refused_on_another_minor_version(
    monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    compat.check_version(version)  # the plugin alone may start
    config = SimpleNamespace(
        cache_config=SimpleNamespace(prefix_caching_hash_algo="sha256_cbor"),
        parallel_config=SimpleNamespace(data_parallel_size=1),
        kv_transfer_config=OURS,
    )
    monkeypatch.setattr(compat, "vllm_version", lambda: "0.32.9")
    compat.check_config(config)
    monkeypatch.setattr(compat, "vllm_version", lambda: version)
    with pytest.raises(ConfigError, match=r"made for vLLM 0\.32"):
        compat.check_config(config)
    config.kv_transfer_config = None
    compat.check_config(config)


def test_a_connector_that_is_not_ours_is_told_by_every_purge(world: World) -> None:
    world.core.vllm_config.kv_transfer_config = OURS
    assert "connector" not in busy(world)
    world.core.vllm_config.kv_transfer_config = SimpleNamespace(
        kv_connector="OffloadingConnector",
        kv_connector_module_path=None,
        kv_connector_extra_config={},
    )
    lines = {line["tier"]: line["error"] for line in world.purger.purge(U)["lines"]}
    assert lines["connector"] is not None


def test_requests_may_be_listed_while_another_thread_adds_one(world: World) -> None:
    added: list[Any] = []

    class Interrupted(WeakValueDictionary[str, Any]):
        """The input thread makes a request in the middle of each walk over it."""

        def values(self) -> Any:
            for index, value in enumerate(super().values()):
                if index == 0:
                    other = Thread(target=lambda: added.append(world.request("u", range(40))))
                    other.start()
                    other.join(0.1)
                    threads.append(other)
                yield value

    threads: list[Thread] = []
    first, second = (world.request("u", range(40)) for _ in range(2))
    world.guard.requests = Interrupted(world.guard.requests)
    assert {one.request_id for one in world.guard.live_requests()} >= {
        first.request_id,
        second.request_id,
    }
    threads[0].join()
    world.guard.requests = WeakValueDictionary(
        dict(WeakValueDictionary.items(world.guard.requests))
    )
    assert added[0].request_id in {one.request_id for one in world.guard.live_requests()}


def test_the_age_of_a_block_is_that_of_its_first_making(world: World) -> None:
    first = world.ask("u", 2)
    blocks = world.guard.blocks
    assert blocks is not None
    born = blocks.get(first.hashes[0])
    world.ask("u", 2)
    assert born is not None
    assert blocks.get(first.hashes[0]) == born
    assert 0 <= blocks.age(born) < 3600
