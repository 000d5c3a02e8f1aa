"""LMCache's AES-256-GCM serializer alone: encrypt and decrypt blocks from memory to memory.

    python benchmarks/_tiers_lmcache.py ROUNDS BLOCKS BLOCK_BYTES/THREADS ...

Prints one JSON object, MB/s by "block bytes/threads/way". Runs where `lmcache` can be imported,
which is not in the environment of ScopeKV: `_tiers_bytes.py` starts it.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from lmcache.v1.distributed.api import ObjectKey
from lmcache.v1.distributed.serde import SerdeConfig, create_serde_processor
from lmcache.v1.memory_management import MemoryObjMetadata, TensorMemoryObj

FRAME_BYTES = 29  # version, nonce, tag
JOB_BLOCKS = 32


def memory(size_bytes: int) -> Any:
    raw = torch.randint(0, 255, (size_bytes,), dtype=torch.uint8)
    shape = torch.Size([size_bytes])
    meta = MemoryObjMetadata(
        shape, torch.uint8, 0, size_bytes, 1, shapes=[shape], dtypes=[torch.uint8]
    )
    return TensorMemoryObj(raw, meta, None)


def run(serde: Any, way: str, source: list[Any], target: list[Any], keys: list[Any]) -> float:
    """Seconds for all blocks, in jobs."""
    submit = getattr(serde, f"submit_{way}")
    query = getattr(serde, f"query_{way}_result")
    began = time.perf_counter()
    open_jobs = [
        submit(
            source[at : at + JOB_BLOCKS], target[at : at + JOB_BLOCKS], keys[at : at + JOB_BLOCKS]
        )
        for at in range(0, len(source), JOB_BLOCKS)
    ]
    while open_jobs:
        found = {job: query(job) for job in open_jobs}
        if False in found.values():
            raise RuntimeError(f"LMCache's serializer failed to {way}")
        open_jobs = [job for job, result in found.items() if result is None]
        time.sleep(0.0002)
    return time.perf_counter() - began


def cell(block_bytes: int, threads: int, rounds: int, blocks: int) -> dict[str, float]:
    plain = [memory(block_bytes) for _ in range(blocks)]
    sealed = [memory(block_bytes + FRAME_BYTES) for _ in range(blocks)]
    again = [memory(block_bytes) for _ in range(blocks)]
    keys = [ObjectKey(index.to_bytes(32, "big"), "model", 0) for index in range(blocks)]
    with tempfile.NamedTemporaryFile() as master:
        Path(master.name).write_bytes(bytes(range(32)))
        options = {"master_key_path": master.name, "aes_bits": 256, "max_workers": threads}
        serde = create_serde_processor(SerdeConfig("aesgcm", options))
        spent = [
            (
                run(serde, "serialize", plain, sealed, keys),
                run(serde, "deserialize", sealed, again, keys),
            )
            for _ in range(rounds + 1)
        ][1:]
        serde.close()
    if not all(torch.equal(a.raw_data, b.raw_data) for a, b in zip(plain, again, strict=True)):
        raise RuntimeError("a block came back wrong")
    megabytes = block_bytes * blocks / 1e6
    return {
        "store": megabytes / statistics.median(first for first, _ in spent),
        "load": megabytes / statistics.median(second for _, second in spent),
        "both": megabytes / statistics.median(sum(pair) for pair in spent),
    }


def main() -> None:
    rounds, blocks, *cells = sys.argv[1:]
    figures = {}
    for name in cells:
        block_bytes, threads = (int(part) for part in name.split("/"))
        for way, value in cell(block_bytes, threads, int(rounds), int(blocks)).items():
            figures[f"{name}/{way}"] = value
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
