"""What was purged and what is being put: between the two nothing slips through.

Under one lock a put either is begun before the fence, and then the purge waits for it and deletes
again, or it finds the fence and is not begun.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Iterable

from scopekv.core.chains import Tag, holds_any

TAGS_MAX = 131_072  # more than the 100,000 that one purge may name


class Fence:
    """Tags that are written no more, and the puts under way by folder. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tags: OrderedDict[Tag, None] = OrderedDict()
        self._puts: Counter[str] = Counter()

    def raise_for(self, tags: Iterable[Tag]) -> None:
        with self._lock:
            for tag in tags:
                self._tags[tag] = None
                self._tags.move_to_end(tag)
            while len(self._tags) > TAGS_MAX:  # epochs long over: the keyring has no lease either
                self._tags.popitem(last=False)

    def holds(self, folder: str) -> bool:
        with self._lock:
            return bool(self._tags) and holds_any(folder, self._tags)

    def begin_put(self, folder: str) -> bool:
        """Whether a put into the folder may begin; every True takes one `end_put`."""
        with self._lock:
            if self._tags and holds_any(folder, self._tags):
                return False
            self._puts[folder] += 1
            return True

    def end_put(self, folder: str) -> bool:
        """The put is over, one way or the other. True if the folder was fenced meanwhile."""
        with self._lock:
            self._puts[folder] -= 1
            if not self._puts[folder]:
                del self._puts[folder]
            return bool(self._tags) and holds_any(folder, self._tags)

    def puts(self, tags: frozenset[Tag]) -> int:
        """How many puts into folders of these tags are under way."""
        with self._lock:
            return sum(n for folder, n in self._puts.items() if holds_any(folder, tags))
