"""Copies between the engine's blocks and host memory, on a machine whose engine is the CPU.

On CUDA vLLM's own worker does this; it refuses the CPU platform, where a copy is a memmove.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator
from typing import Any

from vllm.v1.kv_offload.base import OffloadingWorker, TransferResult


class HostWorker(OffloadingWorker):
    """Each transfer is done when `submit_*` returns. Owns `region` and gives it back."""

    def __init__(self, kv_caches: Any, blocks_per_chunk: int, region: Any) -> None:
        self._region = region
        self._blocks_per_chunk = blocks_per_chunk
        self._refs = kv_caches.group_data_refs
        # Per tensor: address and step between blocks in the engine, then the same in host memory.
        self._engine: list[tuple[int, int]] = []
        self._host: list[tuple[int, int]] = []
        self._pages: list[int] = []
        for canonical in kv_caches.tensors:
            page = canonical.page_size_bytes
            view = region.create_next_worker_view(page * blocks_per_chunk)
            tensor = canonical.tensor
            self._engine.append((tensor.data_ptr(), tensor.stride(0) * tensor.element_size()))
            self._host.append((view.data_ptr(), view.stride(0)))
            self._pages.append(page)
        self._kept = kv_caches  # the addresses stay valid as long as the tensors live
        self._done: list[TransferResult] = []

    def submit_store(self, job_id: int, src_spec: Any, dst_spec: Any) -> bool:
        return self._copy(job_id, src_spec, dst_spec.block_ids, to_host=True)

    def submit_load(self, job_id: int, src_spec: Any, dst_spec: Any) -> bool:
        return self._copy(job_id, dst_spec, src_spec.block_ids, to_host=False)

    def get_finished(self) -> list[TransferResult]:
        done, self._done = self._done, []
        return done

    def wait(self, job_ids: set[int]) -> None:
        """Nothing is ever under way."""

    def shutdown(self) -> None:
        self._engine.clear()
        self._host.clear()
        self._kept = None
        if self._region is not None:
            self._region.cleanup()
            self._region = None

    def _copy(self, job_id: int, engine_spec: Any, chunks: Any, *, to_host: bool) -> bool:
        began, copied = time.perf_counter(), 0
        for group, block, chunk, part in self._pairs(engine_spec, chunks):
            for ref in self._refs[group]:
                base, step = self._engine[ref.tensor_idx]
                host, row = self._host[ref.tensor_idx]
                engine_at = base + block * step
                host_at = host + chunk * row + part * self._pages[ref.tensor_idx]
                target, source = (host_at, engine_at) if to_host else (engine_at, host_at)
                ctypes.memmove(target, source, ref.page_size_bytes)
                copied += ref.page_size_bytes
        seconds = time.perf_counter() - began
        self._done.append(TransferResult(job_id, True, transfer_size=copied, transfer_time=seconds))
        return True

    def _pairs(self, engine_spec: Any, chunks: Any) -> Iterator[tuple[int, int, int, int]]:
        """Yield (group, engine block, host chunk, place of the block in its chunk)."""
        per = self._blocks_per_chunk
        blocks, chunk_ids = engine_spec.block_ids.tolist(), chunks.tolist()
        at = chunk_at = 0
        for group, (size, first) in enumerate(
            zip(engine_spec.group_sizes, engine_spec.block_indices, strict=True)
        ):
            skip = first % per if size else 0
            for index in range(size):
                place = skip + index
                yield group, blocks[at + index], chunk_ids[chunk_at + place // per], place % per
            at += size
            chunk_at += -(-(skip + size) // per) if size else 0
