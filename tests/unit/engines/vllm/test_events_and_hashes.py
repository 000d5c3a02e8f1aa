"""vLLM's own hashes, events and block pool against what the gateway makes of them."""

from __future__ import annotations

import importlib
import random
import warnings
from collections import Counter
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from scopekv.adapters.kv_events import decode_batch
from scopekv.core.block_hashes import ChainHasher, root_of, short
from scopekv.core.blocks import BlockTagger, Fingerprint
from scopekv.core.events import Cleared, Medium, Removed, Stored, decode_snapshot
from scopekv.core.following import Follower
from scopekv.core.locations import LocationIndex
from scopekv.core.scopes import ScopeId
from scopekv.engines.vllm.snapshot import Snapshots, hashing_of

pytestmark = pytest.mark.engine
TAGGER = BlockTagger(
    Fingerprint(bytes(32)), [40, 70], [(ScopeId(bytes([n]) * 16), n) for n in range(3)]
)


@pytest.fixture(scope="session", autouse=True)
def vllm() -> None:
    """Import vLLM once (10 s), with the warnings of what it imports."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        importlib.import_module("vllm.v1.core.block_pool")
        importlib.import_module("vllm.v1.kv_offload.base")


@pytest.fixture
def utils(monkeypatch: pytest.MonkeyPatch) -> Any:
    from vllm.utils.hashing import sha256_cbor
    from vllm.v1.core import kv_cache_utils

    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    kv_cache_utils.init_none_hash(sha256_cbor)
    return kv_cache_utils


def test_the_gateways_chain_is_the_engines(utils: Any) -> None:
    """vLLM's own hasher over extra keys as the plugin adds them."""
    from vllm.utils.hashing import sha256_cbor

    ids = [(i * 7919) % 49152 for i in range(200)]
    parent: Any = None
    theirs = []
    for start in range(0, len(ids) - 31, 32):
        keys = (("scopekv", TAGGER.tag(start, start + 32)),)
        parent = utils.hash_block_tokens(sha256_cbor, parent, ids[start : start + 32], keys)
        theirs.append(bytes(parent))
    assert root_of().hex() == hashing_of("sha256_cbor", 32)["root"]
    assert ChainHasher().chain(ids, TAGGER, block_size=32, root=root_of()) == theirs
    published = [utils.maybe_convert_block_hash(one) for one in theirs]
    assert [short(one) for one in theirs] == published


def test_the_real_publishers_structures_are_read() -> None:
    from vllm.distributed import kv_events as theirs

    stored = theirs.BlockStored(
        block_hashes=[11, 12],
        parent_block_hash=None,
        token_ids=[1] * 64,
        block_size=32,
        lora_id=None,
        medium="GPU",
        lora_name=None,
        extra_keys=[("aa",), None],
    )
    removed = theirs.BlockRemoved(block_hashes=[bytes(31) + b"\x07"], medium="CPU")
    batch = theirs.KVEventBatch(ts=3.0, events=[stored, removed, theirs.AllBlocksCleared()])
    found = decode_batch(0, msgspec.msgpack.encode(batch))
    assert found.events == (
        Stored(Medium.ENGINE, [11, 12]),
        Removed(Medium.HOST, [7]),
        Cleared(),
    )


class Core:
    """As much of an engine core as a snapshot looks at: vLLM's own block pool and publisher."""

    def __init__(self, endpoint: str) -> None:
        from vllm.distributed.kv_events import ZmqEventPublisher
        from vllm.v1.core.block_pool import BlockPool

        self.pool = BlockPool(64, True, 32, enable_kv_cache_events=True)
        self.publisher = ZmqEventPublisher(0, endpoint=endpoint)
        manager = SimpleNamespace(block_pool=self.pool, take_events=self.pool.take_events)
        self.scheduler = SimpleNamespace(
            kv_cache_manager=manager, connector=None, kv_event_publisher=self.publisher
        )


def test_an_index_fed_by_vllms_block_pool_equals_its_snapshot(
    utils: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Equal blocks twice, evictions, a reset, events lost and repeated: snapshots make it good."""
    dice = random.Random(4)
    core = Core(f"ipc://{tmp_path_factory.mktemp('e')}/s")
    guard: Any = SimpleNamespace(tiers=None)
    snapshots = Snapshots(core, guard)
    follower = Follower(LocationIndex(), "a")
    payloads: list[Any] = []
    counted = core.publisher.publish

    def publish(batch: Any) -> None:
        payloads.append(msgspec.msgpack.encode(batch))
        counted(batch)

    core.publisher.publish = publish

    def deliver(first: int) -> None:
        for number in range(first, len(payloads)):
            if dice.random() < 0.97:
                for _ in range(dice.choice((1, 1, 2))):
                    follower.take(decode_batch(number, payloads[number]), now)

    try:
        lost = sure = delivered = 0
        for now in range(1, 400):
            blocks = core.pool.get_new_blocks(dice.randrange(1, 6))
            for block in blocks:
                key = utils.make_block_hash_with_group_id(bytes([dice.randrange(40)]) * 32, 0)
                core.pool._insert_block_hash(key, block, num_tokens=32)
                core.pool.kv_event_queue.append(_stored(utils, key))
            core.pool.free_blocks(blocks)
            if now % 97 == 0:
                assert core.pool.reset_prefix_cache()
            snapshots.flush()
            deliver(delivered)
            delivered = len(payloads)
            lost += not follower.sure
            if follower.due(now) or now == 399:
                life = follower.begin(now)
                taken = decode_snapshot(snapshots.take("life", blocks=True))
                assert taken.sequence == len(payloads)
                for _ in follower.restore(life, taken, now):
                    pass
            if follower.sure and follower.next_sequence == len(payloads):
                sure += 1
                held = follower._index.contents("a", Medium.ENGINE)
                assert held == _held(core)
        assert lost > 3
        assert sure > 300
    finally:
        core.publisher.shutdown()


def _stored(utils: Any, key: Any) -> Any:
    from vllm.distributed.kv_events import BlockStored

    return BlockStored(
        block_hashes=[utils.maybe_convert_block_hash(utils.get_block_hash(key))],
        parent_block_hash=None,
        token_ids=[1] * 32,
        block_size=32,
        lora_id=None,
        medium="GPU",
        lora_name=None,
    )


def _held(core: Core) -> Counter[int]:
    held: Counter[int] = Counter()
    for key, blocks in core.pool.cached_block_hash_to_block._cache.items():
        held[short(bytes(key)[:-4])] += len(blocks) if isinstance(blocks, dict) else 1
    return held
