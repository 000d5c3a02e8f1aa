"""The objects of a tier by key and folder, and how old each is.

Age is counted twice, on the wall clock since the store took an object in and on the monotonic
clock since this process saw it, and the larger one counts. So a wall clock that is set back keeps
nothing alive, and what carries a time to come (more than `SKEW_SECONDS`) is over, not young.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from scopekv.core.chains import Tag, holds_any, retention_of
from scopekv.core.eviction import Entry
from scopekv.ports import ObjectKey, ObjectStat

SKEW_SECONDS = 300.0


@dataclass(slots=True)
class Record:
    """One object. `pending`: room is kept for it, and it is not there yet."""

    entry: Entry[ObjectKey]
    stored_at: float
    seen_at: float
    age_seen: float
    confirmed_at: float
    used_at: float
    uses: int = 0
    pending: bool = False


class Records:
    """For one caller at a time: the index, under its lock."""

    def __init__(self, clock: Callable[[], float], monotonic: Callable[[], float]) -> None:
        self._clock = clock
        self._monotonic = monotonic
        self._records: dict[ObjectKey, Record] = {}
        self._folders: dict[str, set[ObjectKey]] = {}

    def __len__(self) -> int:
        return len(self._records)

    def __contains__(self, key: ObjectKey) -> bool:
        return key in self._records

    def __getitem__(self, key: ObjectKey) -> Record:
        return self._records[key]

    def get(self, key: ObjectKey) -> Record | None:
        return self._records.get(key)

    def all(self) -> dict[ObjectKey, Record]:
        """A copy."""
        return dict(self._records)

    def newest(self) -> Iterator[ObjectKey]:
        """Keys, the one that was added last first."""
        return reversed(self._records)

    def add(self, key: ObjectKey, entry: Entry[ObjectKey], stored_at: float, uses: int) -> None:
        now = self._monotonic()
        self._records[key] = Record(entry, stored_at, now, self._age(stored_at), now, now, uses)
        self._folders.setdefault(key.chain, set()).add(key)

    def drop(self, key: ObjectKey) -> bool:
        """Whether it was there."""
        if self._records.pop(key, None) is None:
            return False
        names = self._folders[key.chain]
        names.discard(key)
        if not names:
            del self._folders[key.chain]
        return True

    def stored_now(self, record: Record) -> None:
        """What was pending is there, as of now."""
        record.pending = False
        record.stored_at, record.age_seen = self._clock(), 0.0
        record.seen_at = record.confirmed_at = self._monotonic()

    def folders(self) -> list[str]:
        return list(self._folders)

    def tagged(self, tags: Collection[Tag]) -> list[ObjectKey]:
        """What lies in folders that hold one of the tags."""
        folders = [name for name in self._folders if holds_any(name, tags)]
        return [key for name in folders for key in self._folders[name]]

    def unconfirmed(self, since: float) -> list[ObjectKey]:
        """What no listing and no put has shown since `since` (monotonic)."""
        return [
            key
            for key, record in self._records.items()
            if not record.pending and record.confirmed_at < since
        ]

    def over(self, key: ObjectKey, record: Record) -> bool:
        """Whether it is past its retention. What is not there yet never is."""
        if record.pending:
            return False
        seen = record.age_seen + self._monotonic() - record.seen_at
        return _stale(key, max(seen, self._age(record.stored_at)))

    def over_in(self, folder: str) -> list[ObjectKey]:
        """What of a folder is past its retention."""
        return [key for key in self._folders.get(folder, ()) if self.over(key, self._records[key])]

    def listed_over(self, stat: ObjectStat) -> bool:
        """Whether an object is past its retention by what a listing says of it."""
        return _stale(stat.key, self._age(stat.stored_at))

    def bytes_by_account(self) -> Counter[bytes]:
        used: Counter[bytes] = Counter()
        for record in self._records.values():
            used[record.entry.account] += record.entry.size_bytes
        return used

    def _age(self, stored_at: float) -> float:
        age = self._clock() - stored_at
        return float("inf") if age < -SKEW_SECONDS else max(0.0, age)


def _stale(key: ObjectKey, age: float) -> bool:
    retention = retention_of(key.chain)
    return retention is not None and age > retention
