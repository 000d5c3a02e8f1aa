"""What was purged and what is being put: between the two nothing slips through.

Under one lock a put either is begun before the fence, and then the purge waits for it and deletes
again, or it finds the fence and is not begun. What others delete because it is fenced is counted
for the purge: a receipt says what went, whoever was there first.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Sequence

from scopekv.core.chains import Tag, holds_any

TAGS_MAX = 131_072  # more than the 100,000 that one purge may name
FOLDERS_MAX = 131_072  # whose count is kept; a purge that asks later says less


class Fence:
    """Tags that are written no more, and the puts under way by folder. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tags: OrderedDict[Tag, None] = OrderedDict()
        self._puts: Counter[str] = Counter()
        self._deleting = threading.Lock()
        self._deleted: dict[str, int] = {}  # by folder, beside the purge and for it to take

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

    def delete(self, delete: Callable[[], int]) -> int:
        """Delete fenced objects, one batch at a time: S3 asks what is there before, and two that
        ask at once would both count it."""
        with self._deleting:
            return delete()

    def delete_beside(self, folders: Sequence[str], delete: Callable[[], int]) -> int:
        """`delete` for who is no purge: what went of fenced folders is kept for a purge to `take`.

        `folders`: of each object. Of those that were not there any more it is not known whose they
        were: no folder's count is too high.
        """
        with self._deleting:
            removed = delete()
            missing = len(folders) - removed
            for folder, count in Counter(filter(self.holds, folders)).items():
                self._deleted[folder] = self._deleted.pop(folder, 0) + max(0, count - missing)
            while len(self._deleted) > FOLDERS_MAX:
                del self._deleted[next(iter(self._deleted))]
        return removed

    def take(self, tags: frozenset[Tag]) -> int:
        """How many objects of these tags went beside their purge since it was asked last."""
        with self._deleting:
            folders = [folder for folder in self._deleted if holds_any(folder, tags)]
            return sum(self._deleted.pop(folder) for folder in folders)

    def puts(self, tags: frozenset[Tag]) -> int:
        """How many puts into folders of these tags are under way."""
        with self._lock:
            return sum(n for folder, n in self._puts.items() if holds_any(folder, tags))
