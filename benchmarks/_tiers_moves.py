"""The tiers whose bytes per second are measured, each behind the same three calls."""

from __future__ import annotations

import hashlib
import itertools
import mmap
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

from scopekv.adapters.objects import open_store
from scopekv.simulate.sealed_tier import TierStage, link
from scopekv.store.settings import TierSettings
from scopekv.store.tier import Block

BLOCK_BYTES = (737_280, 1_474_560)  # 32 tokens of SmolLM2 in bfloat16 and float32
JOB_BLOCKS = 32  # a prompt of 1,024 tokens


class Moves(Protocol):
    """A tier under measurement. `poll` returns how many blocks were moved since the last call."""

    def store(self, first: int, count: int) -> None: ...
    def load(self, first: int, count: int) -> None: ...
    def poll(self) -> int: ...


@dataclass
class Host:
    """Host memory: page-aligned, each block different."""

    block_bytes: int
    blocks: int
    view: memoryview = field(init=False)
    _base: bytes = field(init=False)

    def __post_init__(self) -> None:
        self.view = memoryview(mmap.mmap(-1, self.block_bytes * self.blocks))
        self._base = os.urandom(self.block_bytes - 8)

    def slot(self, index: int) -> memoryview:
        return self.view[index * self.block_bytes : (index + 1) * self.block_bytes]

    def fill(self) -> None:
        for index in range(self.blocks):
            slot = self.slot(index)
            slot[:8], slot[8:] = index.to_bytes(8, "big"), self._base

    def clear(self) -> None:
        zeros = bytes(self.block_bytes)
        for index in range(self.blocks):
            self.slot(index)[:] = zeros

    def check(self) -> None:
        """Raise unless every block is back."""
        for index in range(self.blocks):
            slot = self.slot(index)
            if slot[:8] != index.to_bytes(8, "big") or slot[8:] != self._base:
                raise RuntimeError(f"block {index} came back wrong")


class Sealed:
    """Our tier: leases in memory, the rest as in an engine."""

    def __init__(self, folder: Path, host: Host, threads: int) -> None:
        settings = TierSettings(
            capacity_bytes=4 * host.blocks * host.block_bytes, workers=threads, workers_max=threads
        )
        store = open_store(str(folder))
        self._stage = TierStage(store, settings=settings, block_bytes=host.block_bytes).ready()
        chain = self._stage.grant(link("organisation"), link("user"))
        self._blocks = [
            Block(chain, block_name(index), 0, host.slot(index), depth=index)
            for index in range(host.blocks)
        ]

    def store(self, first: int, count: int) -> None:
        self._stage.tier.store(self._stage.job(), self._blocks[first : first + count])

    def load(self, first: int, count: int) -> None:
        self._stage.tier.load(self._stage.job(), self._blocks[first : first + count])

    def poll(self) -> int:
        return sum(len(done.ok) for done in self._stage.tier.finished())

    def close(self) -> None:
        stored = self._stage.tier.counters()["stored"]
        self._stage.close()
        if stored != len(self._blocks):
            raise RuntimeError(f"only {stored} of {len(self._blocks)} blocks were stored")


class Plain:
    """vLLM's own tier. With n threads n read or store: a group of each, n in all."""

    def __init__(self, folder: Path, host: Host, threads: int, *, buffered: bool) -> None:
        from vllm.v1.kv_offload.tiering.fs.manager import FileSystemTierManager

        view = host.view.cast("B", (host.blocks, host.block_bytes))
        self._tier: Any = FileSystemTierManager(
            _spec(), view, "fs", str(folder), threads - threads // 2, threads // 2
        )
        if buffered:
            self._tier._use_o_direct = False
        self.o_direct = bool(self._tier._use_o_direct)
        self._job_ids = itertools.count()
        self._sizes: dict[int, int] = {}

    def store(self, first: int, count: int) -> None:
        self._tier.submit_store(self._job(first, count))

    def load(self, first: int, count: int) -> None:
        self._tier.submit_load(self._job(first, count))

    def poll(self) -> int:
        results = list(self._tier.get_finished_jobs())
        if not all(result.success for result in results):
            raise RuntimeError("vLLM's fs tier failed")
        return sum(self._sizes.pop(result.job_id) for result in results)

    def close(self) -> None:
        self._tier.shutdown()

    def _job(self, first: int, count: int) -> Any:
        import numpy as np
        from vllm.v1.kv_offload.tiering.base import TransferJob

        job_id = next(self._job_ids)
        self._sizes[job_id] = count
        chunks = np.arange(first, first + count)
        keys = [block_name(int(index)) + bytes(4) for index in chunks]
        return TransferJob(job_id, keys, chunks, False, None)


def block_name(index: int) -> bytes:
    return hashlib.sha256(b"block %d" % index).digest()


def _spec() -> Any:
    """As much of an offloading spec as the tier reads."""
    parallel = SimpleNamespace(
        tp_size=1, pp_size=1, pcp_size=1, dcp_size=1, rank=0, is_parallelism_agnostic=True
    )
    config = SimpleNamespace(
        groups=(),
        parallel=parallel,
        canonical_layout=False,
        replicated_layout=False,
        model=SimpleNamespace(name="model", dtype="float32"),
        cache=SimpleNamespace(tokens_per_hash=32),
    )
    return SimpleNamespace(
        config=config, blocks_per_chunk=1, kv_events_config=SimpleNamespace(), metrics=None
    )


@contextmanager
def opened(system: str, folder: Path, host: Host, threads: int) -> Iterator[Any]:
    folder.mkdir(mode=0o700, parents=True)
    made: Any
    if system == "sealed":
        made = Sealed(folder / "tier", host, threads)
    else:
        made = Plain(folder, host, threads, buffered=system == "fs_buffered")
    try:
        yield made
    finally:
        made.close()
        shutil.rmtree(folder)
