"""KV events from the wire: token ids stay out, nobody else can listen, restarts are noticed."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from scopekv.adapters.kv_events import KVEventSubscriber, check_endpoint, decode_batch
from scopekv.core.events import Batch, Cleared, Event, Medium, Removed, Stored
from scopekv.errors import ConfigError, Corrupt
from scopekv.simulate.events import EventBus, encode_batch
from scopekv.simulate.prefix_cache import PrefixCache


def test_a_batch_is_read_as_vllm_writes_it() -> None:
    events: list[Event] = [
        Stored(Medium.ENGINE, [1, 2**64 - 1]),
        Removed(Medium.HOST, [3]),
        Stored(Medium.S3, [4]),
        Cleared(),
    ]
    found = decode_batch(5, encode_batch(1.5, events))
    assert found == Batch(5, 1.5, tuple(events))
    assert found.blocks == 4


def test_a_medium_that_is_no_place_of_ours_is_passed_over() -> None:
    other = {"type": "BlockRemoved", "block_hashes": [1], "medium": "STORAGE"}
    assert decode_batch(5, msgspec.msgpack.encode([1.5, [other], 0])) == Batch(5, 1.5, ())


def test_i10_token_ids_and_extra_keys_are_left_at_the_door() -> None:
    """Nothing that the decoder makes leads to them."""
    secret, token = "f0" * 32, 987_654_321
    payload = msgspec.msgpack.encode(
        [
            1.0,
            [
                {
                    "type": "BlockStored",
                    "block_hashes": [1],
                    "token_ids": [token],
                    "extra_keys": [[secret]],
                    "medium": "GPU",
                }
            ],
            0,
        ]
    )
    reached: list[Any] = [decode_batch(0, payload)]
    seen: set[int] = set()
    values = []
    while reached:
        one = reached.pop()
        if id(one) in seen or isinstance(one, type):
            continue
        seen.add(id(one))
        values.append(one)
        reached.extend(gc.get_referents(one))
    assert 1 in values, "the positive control: the hash is found"
    assert token not in values
    assert secret not in values


@pytest.mark.parametrize(
    "payload",
    [b"", b"\xc1", b"\x93", msgspec.msgpack.encode([1.0, [{"type": "Other"}], 0]), b"\x80"],
)
def test_a_broken_payload_is_corrupt_and_not_repeated(payload: bytes) -> None:
    with pytest.raises(Corrupt) as caught:
        decode_batch(0, payload)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    "endpoint",
    [
        *("tcp://*:5557", "tcp://0.0.0.0:5557", "tcp://10.0.0.5:5557", "tcp://[::]:5557"),
        *("tcp://example.org:5557", "ipc://relative", "ipc:///no/such/folder/x", "inproc://x"),
        *("pgm://127.0.0.1:1", "", "tcp://127.0.0.1", "tcp://127.0.0.1.example.org:1"),
    ],
)
def test_i10_an_endpoint_that_others_can_listen_at_is_refused(endpoint: str) -> None:
    with pytest.raises(ConfigError):
        check_endpoint(endpoint)


@pytest.mark.parametrize(
    "endpoint", ["tcp://127.0.0.1:5557", "tcp://localhost:1", "tcp://[::1]:5557"]
)
def test_loopback_is_taken(endpoint: str) -> None:
    assert check_endpoint(endpoint) == endpoint


def test_i10_a_socket_in_a_folder_open_to_others_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "e"
    folder.mkdir(mode=0o700)
    endpoint = f"ipc://{folder}/x"
    assert check_endpoint(endpoint) == endpoint
    folder.chmod(0o710)
    with pytest.raises(ConfigError, match="chmod 700"):
        check_endpoint(endpoint)
    with pytest.raises(ConfigError, match="107"):
        check_endpoint(f"ipc://{folder}/{'x' * 120}")


async def until(done: Callable[[], bool]) -> None:
    for _ in range(500):
        if done():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not come about")


async def test_batches_arrive_over_a_socket_and_a_restart_is_noticed(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    endpoint = f"ipc://{tmp_path_factory.mktemp('e')}/s"
    got: list[Batch] = []
    lost: list[bool] = []
    subscriber = KVEventSubscriber(endpoint, got.append, lambda: lost.append(True))
    subscriber.start()
    try:
        for _ in range(2):
            bus = EventBus(lambda: 1.0)
            cache = PrefixCache(block_size=2, blocks_max=10)
            bus.watch(cache, Medium.ENGINE)
            bus.listen(endpoint)
            await asyncio.wait_for(subscriber.connected.wait(), 60)
            before = len(got)
            family = 0
            while len(got) == before:  # a subscription takes a moment to reach the publisher
                family += 1
                ids = [family, family]
                cache.prefill(ids, cache.hashes(ids, lambda *_: ()))
                bus.flush()
                await asyncio.sleep(0.01)
            assert isinstance(got[-1].events[0], Stored)
            told = len(lost)
            bus.close()
            await until(lambda told=told: len(lost) > told)  # type: ignore[misc]
        assert not subscriber.connected.is_set()
    finally:
        await subscriber.stop()
