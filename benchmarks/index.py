"""The location index: bytes per entry, look-ups, and events applied from the wire.

    benchmarks/index.py [--blocks 1000000] [--instances 4] [--json FILE]

An entry is one block on one instance. Memory is what the process grew by; times are one core's.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import statistics
import time
from pathlib import Path
from typing import Any

import msgspec

from scopekv.adapters.kv_events import decode_batch
from scopekv.core.block_hashes import ChainHasher, pack, root_of, short
from scopekv.core.blocks import BlockTagger, Fingerprint
from scopekv.core.events import (
    Medium,
    OuterTier,
    OuterTiers,
    Snapshot,
    decode_snapshot,
    encode_snapshot,
)
from scopekv.core.following import Follower
from scopekv.core.locations import BLOCK_BYTES, LocationIndex, Reach
from scopekv.core.scopes import ScopeId
from scopekv.core.speeds import TierSpeed

BATCH_BLOCKS = 100  # of one step: a prompt of 3,200 tokens
BLOCK_TOKENS = 32
CHAIN_BLOCKS = 1_000
ROUNDS = 400
PAGE_BYTES = 4096


def resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES


def wire(dice: random.Random, hashes: list[int], kind: str) -> bytes:
    """One batch as vLLM 0.32 publishes it, token ids and extra keys included."""
    event: dict[str, Any] = {"type": kind, "block_hashes": hashes, "medium": "GPU", "group_idx": 0}
    if kind == "BlockStored":
        event |= {
            "parent_block_hash": hashes[0],
            "token_ids": [dice.randrange(49_152) for _ in range(BLOCK_TOKENS * len(hashes))],
            "block_size": BLOCK_TOKENS,
            "lora_id": None,
            "lora_name": None,
            "extra_keys": [[f"{dice.getrandbits(256):064x}"] for _ in hashes],
            "kv_cache_spec_kind": "full_attention",
        }
    return msgspec.msgpack.encode([time.time(), [event], 0])


def measure_memory(blocks: int, instances: int) -> tuple[dict[str, Any], LocationIndex, list[int]]:
    """Fill an index through its followers' own path; return it and one chain."""
    dice = random.Random(1)
    index = LocationIndex(blocks * BLOCK_BYTES * 2)
    names = [f"instance-{n}" for n in range(instances)]
    before = resident_bytes()
    for name in names:
        index.join(name)
    chain: list[int] = []
    for start in range(0, blocks, BATCH_BLOCKS):
        hashes = [dice.getrandbits(64) for _ in range(min(BATCH_BLOCKS, blocks - start))]
        packed = pack(hashes)
        for name in names:
            # A hash is a new object in every batch, as when decoded.
            index.add(name, Medium.ENGINE, memoryview(packed).cast("Q"))
        if len(chain) < CHAIN_BLOCKS:
            chain += list(memoryview(packed).cast("Q"))
    grown = resident_bytes() - before
    entries = blocks * instances
    figures = {
        "blocks": blocks,
        "instances": instances,
        "entries": entries,
        "bytes_per_entry": round(grown / entries, 1),
        "bytes_total": grown,
        "bytes_per_block": round(grown / blocks, 1),
        "bytes_counted": index.used_bytes,
    }
    return figures, index, chain[:CHAIN_BLOCKS]


def measure_lookups(index: LocationIndex, chain: list[int]) -> dict[str, Any]:
    """Locate a prompt of 1,000 blocks that every instance holds, and one that none does."""
    strange = [one ^ 1 for one in chain]
    times: dict[str, list[float]] = {"all": [], "none": []}
    for _ in range(ROUNDS):
        for name, asked in (("all", chain), ("none", strange)):
            began = time.perf_counter()
            found = index.locate(asked, index.instances, BLOCK_TOKENS)
            times[name].append(time.perf_counter() - began)
            assert {reach.engine for reach in found.values()} == {
                len(chain) if name == "all" else 0
            }
    micros = sorted(1e6 * one for one in times["all"])
    return {
        "lookup_1000_us_p50": round(statistics.median(micros), 1),
        "lookup_1000_us_p99": round(micros[int(0.99 * len(micros))], 1),
        "lookup_1000_nobody_us_p50": round(1e6 * statistics.median(times["none"]), 1),
    }


def measure_tiers(index: LocationIndex, chain: list[int]) -> dict[str, Any]:
    """A prompt of which each instance has a third in its engine, in host memory and on S3.

    All share the S3 store, and each has written every so many blocks of it.
    """
    third, names = len(chain) // 3, index.instances
    store = OuterTier(Medium.S3, b"shared", TierSpeed(0.03, 1e8, samples=1))
    for number, name in enumerate(names):
        index.remove(name, Medium.ENGINE, chain[third:])
        index.add(name, Medium.HOST, chain[third : 2 * third])
        index.add(name, Medium.S3, chain[2 * third + number :: len(names)])
        index.told(name, OuterTiers(BLOCK_TOKENS, 1 << 20, (store,)))
    times = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        found = index.locate(chain, names, BLOCK_TOKENS)
        times.append(time.perf_counter() - began)
        rest = len(chain) - 2 * third
        assert set(found.values()) == {Reach(third, 2 * third, ((Medium.S3, rest),))}
    return {"lookup_1000_tiers_us_p50": round(1e6 * statistics.median(times), 1)}


def measure_applied(blocks: int) -> dict[str, Any]:
    """Batches from the wire, decoded and applied in order; a quarter of the blocks leave again."""
    dice = random.Random(2)
    payloads: list[bytes] = []
    count, held = 0, []
    while count < blocks:
        hashes = [dice.getrandbits(64) for _ in range(BATCH_BLOCKS)]
        held += hashes[: BATCH_BLOCKS // 4]
        payloads.append(wire(dice, hashes, "BlockStored"))
        count += BATCH_BLOCKS
        if len(held) >= BATCH_BLOCKS:
            payloads.append(wire(dice, held[:BATCH_BLOCKS], "BlockRemoved"))
            held = held[BATCH_BLOCKS:]
            count += BATCH_BLOCKS
    follower = Follower(LocationIndex(), "instance")
    gc.collect()
    began = time.process_time()
    for number, payload in enumerate(payloads):
        follower.take(decode_batch(number, payload), 0.0)
    seconds = time.process_time() - began
    assert follower.sure
    assert follower.counts["stored"] + follower.counts["removed"] == count
    began = time.process_time()
    batches = [decode_batch(number, payload) for number, payload in enumerate(payloads)]
    decoding = time.process_time() - began
    assert len(batches) == len(payloads)
    return {
        "blocks_applied": count,
        "blocks_applied_per_s": round(count / seconds),
        "decoding_share": round(decoding / seconds, 2),
    }


def measure_rest(index: LocationIndex) -> dict[str, Any]:
    """A snapshot of 200,000 blocks restored; a restart forgotten; a prompt's chain made."""
    dice = random.Random(3)
    hashes = [dice.getrandbits(64) for _ in range(200_000)]
    packed = encode_snapshot(Snapshot("life", 1, time.time(), {Medium.ENGINE: hashes}))
    follower = Follower(LocationIndex(), "instance")
    life = follower.begin(0.0)
    began = last = time.process_time()
    longest = 0.0
    for _ in follower.restore(life, decode_snapshot(packed), 0.0):
        now = time.process_time()
        longest, last = max(longest, now - last), now
    restored = time.process_time() - began
    assert follower.sure
    began = time.process_time()
    index.forget(index.instances[0])
    forgotten = time.process_time() - began
    ids = [dice.randrange(49_152) for _ in range(CHAIN_BLOCKS * BLOCK_TOKENS)]
    tags = BlockTagger(Fingerprint(bytes(32)), [5000], [(ScopeId(bytes(16)), 0)] * 2)
    hasher = ChainHasher()
    times = []
    for _ in range(20):
        began = time.perf_counter()
        [short(one) for one in hasher.chain(ids, tags, block_size=BLOCK_TOKENS, root=root_of())]
        times.append(time.perf_counter() - began)
    return {
        "snapshot_200k_restore_ms": round(1e3 * restored, 1),
        "snapshot_200k_bytes": len(packed),
        "snapshot_slice_ms_max": round(1e3 * longest, 1),
        "forget_instance_us": round(1e6 * forgotten, 1),
        "chain_1000_us_p50": round(1e6 * statistics.median(times), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--blocks", type=int, default=1_000_000)
    parser.add_argument("--instances", type=int, default=4)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    figures, index, chain = measure_memory(options.blocks, options.instances)
    figures |= measure_lookups(index, chain)
    figures |= measure_tiers(index, chain)
    figures |= measure_rest(index)
    del index
    figures |= measure_applied(1_000_000)
    for name, value in figures.items():
        print(f"{name:28} {value:>14,}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
