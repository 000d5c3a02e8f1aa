"""What a location index is told of an engine's tiers: events and snapshots say what is there."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING

import msgspec
import pytest

from scopekv.adapters.kv_events import decode_batch
from scopekv.core.block_hashes import short
from scopekv.core.events import Medium, decode_snapshot
from scopekv.core.following import Follower
from scopekv.core.locations import LocationIndex, Reach
from scopekv.engines.vllm.snapshot import Snapshots
from tests.engine.offloading.parts import CHUNK_TOKENS, ROW_BYTES
from tests.engine.offloading.test_forgetting import purged

if TYPE_CHECKING:
    from tests.engine.offloading.world import World

pytestmark = pytest.mark.engine


class Followed:
    """An index that follows a world through what vLLM would publish of its one tier."""

    def __init__(self, world: World) -> None:
        self.world, self.index = world, LocationIndex()
        self.follower = Follower(self.index, "a")
        self.sequence = 0

    def publish(self) -> None:
        """A step's events, as they go over the wire."""
        from vllm.distributed.kv_events import KVEventBatch

        (tier,) = self.world.tiers
        batch = KVEventBatch(ts=1.0 + self.sequence, events=list(tier.kv_events()))
        self.follower.take(decode_batch(self.sequence, msgspec.msgpack.encode(batch)), 1.0)
        self.sequence += 1

    def exact(self) -> bool:
        self.publish()
        (tier,) = self.world.tiers
        held = Counter(tier.sealed.residents.all().values())
        return self.index.contents("a", Medium.DIRECTORY) == held


@pytest.fixture
def followed(world: World) -> Followed:
    return Followed(world)


def test_a_tier_tells_what_was_stored_and_purged(followed: Followed) -> None:
    followed.world.stored("u", 5)
    assert followed.exact()
    assert followed.index.size("a", Medium.DIRECTORY) == 5
    purged(followed.world)
    assert followed.exact()
    assert followed.index.size("a", Medium.DIRECTORY) == 0
    assert followed.follower.sure
    assert followed.follower.counts["orphans"] == 0


def test_the_index_is_exact_while_prompts_come_and_blocks_vanish(followed: Followed) -> None:
    dice, world = random.Random(6), followed.world
    for _ in range(20):
        world.stored("u", dice.randrange(1, 9))
        parts = world.tiers[0].sealed._parts
        keys = list(parts.index.records())
        parts.index.forget(dice.sample(keys, min(2, len(keys))))
        assert followed.exact()
    assert followed.index.size("a", Medium.DIRECTORY) > 0, "the positive control"


def test_a_snapshot_names_the_tiers_and_what_they_were_told_to_hold(followed: Followed) -> None:
    world = followed.world
    world.stored("u", 4)
    world.known_speeds()
    scheduler = world.core.scheduler
    scheduler.kv_event_publisher, scheduler.connector = None, None
    world.pool.cached_block_hash_to_block._cache.clear()
    snapshots = Snapshots(world.core, world.guard)
    empty = decode_snapshot(snapshots.take("life", blocks=True))
    assert empty.blocks is not None
    assert list(empty.blocks[Medium.DIRECTORY]) == [], "nothing was published"
    followed.publish()
    taken = decode_snapshot(snapshots.take("life", blocks=True))
    assert taken.blocks is not None
    assert taken.tiers is not None
    asked = world.ask("u", 4)
    hashes = [short(one) for one in asked.hashes]
    assert sorted(taken.blocks[Medium.DIRECTORY]) == sorted(hashes)
    assert (taken.tiers.chunk_tokens, taken.tiers.chunk_bytes) == (CHUNK_TOKENS, ROW_BYTES)
    (place,) = taken.tiers.nearest
    assert place.medium is Medium.DIRECTORY
    assert place.speed.samples > 0
    followed.index.told("a", taken.tiers)
    reach = followed.index.locate(hashes, ["a"], CHUNK_TOKENS)["a"]
    assert reach == Reach(0, 0, ((Medium.DIRECTORY, 4),))
