"""Taking chunks out of vLLM's host memory between two steps: what a purge and retention drop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def drop(host: Any, wanted: Callable[[bytes], bool]) -> tuple[int, int]:
    """Remove and overwrite the chunks whose key is `wanted`; return (removed, busy).

    `host` is vLLM's primary tier. Busy ones are being written, loaded or cascaded: ask again.
    Cost: a pass over all keys, and a memset for each that goes.
    """
    removed = busy = 0
    view = host.get_kv_memoryview()
    row = view.strides[0]
    with view.cast("B") as flat:
        for key in [key for key in host._policy.held() if wanted(bytes(key))]:
            chunk = host._policy.get(key)
            if chunk.ref_cnt != 0:
                busy += 1
                continue
            host._policy.remove(key)
            host._num_evictable_cache_chunks -= 1
            flat[chunk.chunk_id * row : (chunk.chunk_id + 1) * row] = bytes(row)
            host._free_chunk(chunk)
            removed += 1
    return removed, busy
