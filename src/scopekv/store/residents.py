"""Which blocks lie in a store, as far as this process knows their names, and what changed of it.

An object's name is keyed, so a listing tells no block. A block is known once it was written, looked
up or noted in the manifest here.

    put, drop ──▶ blocks of objects ──▶ change since the last `changes` ──▶ KV events
                         └── less that change ──▶ `told`, exact after those events ──▶ snapshot
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping

from scopekv.ports import ObjectKey


class Residents:
    """Short block hashes by object. Thread-safe. At most as many entries as objects."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blocks: dict[ObjectKey, int] = {}
        self._change: dict[int, int] = {}  # objects more or less of a block; none of them 0

    def put(self, key: ObjectKey, block: int) -> None:
        """The object is there and holds this block. Nothing changes if that is known."""
        with self._lock:
            if key not in self._blocks:
                self._blocks[key] = block
                self._count(block, 1)

    def drop(self, key: ObjectKey) -> None:
        """The object is there no more."""
        with self._lock:
            block = self._blocks.pop(key, None)
            if block is not None:
                self._count(block, -1)

    def all(self) -> Mapping[ObjectKey, int]:
        """The block of each object."""
        with self._lock:
            return dict(self._blocks)

    def changes(self) -> tuple[list[int], list[int]]:
        """What came and what left since the last call, a block for each object of it."""
        with self._lock:
            change, self._change = Counter(self._change), {}
        return list(change.elements()), list((-change).elements())

    def told(self) -> list[int]:
        """What lay here at the last `changes`, a block for each object. Cost: O(objects)."""
        with self._lock:
            held, change = list(self._blocks.values()), dict(self._change)
        changed = Counter(block for block in held if block in change)
        changed.subtract(change)
        return [*(block for block in held if block not in change), *changed.elements()]

    def _count(self, block: int, by: int) -> None:
        count = self._change.pop(block, 0) + by
        if count:
            self._change[block] = count
