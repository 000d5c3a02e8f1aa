"""What a tier keeps, as far as this process knows: sizes, ages, uses, and the hard byte limit.

Age is counted twice, on the wall clock since the store took an object in and on the monotonic
clock since this process saw it, and the larger one counts. So a wall clock that is set back keeps
nothing alive, and what carries a time to come (more than `SKEW_SECONDS`) is over, not young.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from scopekv.core.chains import Tag, holds_any, retention_of
from scopekv.core.eviction import Entry, EvictionPolicy
from scopekv.core.leases import NOBODY
from scopekv.ports import ObjectKey, ObjectStat
from scopekv.store.departures import Departures
from scopekv.store.residents import Residents

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


class Index:
    """Objects by key, with their folders. Thread-safe; calls take microseconds."""

    def __init__(
        self,
        policy: EvictionPolicy[ObjectKey],
        capacity_bytes: int,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
    ) -> None:
        self._policy = policy
        self._capacity = capacity_bytes
        self._clock = clock
        self._monotonic = monotonic
        self._lock = threading.RLock()
        self._records: dict[ObjectKey, Record] = {}
        self._folders: dict[str, set[ObjectKey]] = {}
        self._parents: dict[tuple[bytes, int], ObjectKey] = {}
        self._doubtful: dict[ObjectKey, int] = {}
        self._left = Departures(monotonic)
        self.residents = Residents()
        self._leaving: set[ObjectKey] = set()  # forgotten, and being deleted

    def __len__(self) -> int:
        return len(self._records)

    @property
    def used_bytes(self) -> int:
        """Bytes in the store: what is there, is on its way in, or could not be deleted yet."""
        with self._lock:
            return self._policy.used_bytes() + sum(self._doubtful.values())

    def get(self, key: ObjectKey) -> Record | None:
        """The record of an object that is there and not over."""
        with self._lock:
            record = self._records.get(key)
            if record is None or record.pending or self._over(key, record):
                return None
            return record

    def keeps(self, key: ObjectKey) -> bool:
        """Whether the object is there, or on its way in."""
        with self._lock:
            record = self._records.get(key)
            return record is not None and not self._over(key, record)

    def use(self, key: ObjectKey, account: bytes) -> None:
        """A use: counted, and what was nobody's becomes the account's."""
        with self._lock:
            record = self._records.get(key)
            if record is None:
                return
            record.uses += 1
            record.used_at = self._monotonic()
            if record.entry.account == NOBODY != account and not record.pending:
                self._policy.remove(key)
                old = record.entry
                record.entry = Entry(account, old.parent, old.depth, old.size_bytes, old.cost)
                self._policy.insert(key, record.entry)
            self._policy.touch(key)

    def pin(self, key: ObjectKey) -> bool:
        with self._lock:
            if key not in self._records:
                return False
            self._policy.pin(key)
            return True

    def unpin(self, key: ObjectKey) -> None:
        with self._lock:
            if key in self._records:
                self._policy.unpin(key)

    def found(
        self,
        stat: ObjectStat,
        entry: Entry[ObjectKey] | None = None,
        uses: int = 0,
        *,
        since: float = float("inf"),
    ) -> bool:
        """Note an object that a listing showed. True if it was new.

        What was forgotten after `since` (monotonic), as the listing began, is not taken up again:
        the listing may have seen it before it went. An empty object is none: a power cut leaves
        such files, and the next store replaces them.
        """
        if stat.size_bytes < 1:
            return False
        with self._lock:
            record = self._records.get(stat.key)
            if record is not None:
                record.confirmed_at = self._monotonic()
                return False
            if stat.key in self._leaving or stat.key in self._doubtful:
                return False
            if self._left.since(stat.key, since):
                return False
            entry = entry or Entry(NOBODY, None, 0, stat.size_bytes, 0.0)
            self._add(stat.key, entry, stat.stored_at, uses)
            return True

    def reserve(self, key: ObjectKey, entry: Entry[ObjectKey]) -> list[ObjectKey] | None:
        """Keep room for an object; return what must be deleted before it is put.

        The victims are forgotten here; `cleared` or `doubt` says how deleting them went. None, and
        nothing changed, where there is no room for it within its account's share, or it is there
        already, or being deleted.
        """
        with self._lock:
            if key in self._records or key in self._leaving or entry.size_bytes > self._capacity:
                return None
            victims = self._victims(entry)
            if victims is None:
                return None
            for one in victims:
                self._drop(one)
            self._leaving.update(victims)
            self._add(key, entry, self._clock(), 0)
            self._records[key].pending = True
            self._policy.pin(key)
            return victims

    def is_block(self, key: ObjectKey, block: int) -> None:
        """Note which block (short hash) an object holds, if it is there."""
        with self._lock:
            record = self._records.get(key)
            if record is not None and not record.pending:
                self.residents.put(key, block)

    def commit(self, key: ObjectKey) -> bool:
        """The object is in the store. False where it was forgotten meanwhile (a purge)."""
        with self._lock:
            record = self._records.get(key)
            if record is None or not record.pending:
                return False
            record.pending = False
            record.stored_at, record.age_seen = self._clock(), 0.0
            record.seen_at = record.confirmed_at = self._monotonic()
            self._policy.unpin(key)
            self._doubtful.pop(key, None)
            return True

    def doubt(self, keys: Iterable[ObjectKey], size_bytes: int) -> None:
        """Forget objects whose put or deletion failed half way; their bytes count on."""
        with self._lock:
            for key in keys:
                self._drop(key)
                self._leaving.discard(key)
                self._doubtful[key] = size_bytes

    def doubtful(self) -> list[ObjectKey]:
        """What is to be deleted as soon as the store lets us."""
        with self._lock:
            return list(self._doubtful)

    def cleared(self, keys: Iterable[ObjectKey]) -> None:
        """These are gone from the store for certain: what was forgotten before it was deleted.

        A listing may have found them in between; what it took up again is forgotten once more.
        """
        with self._lock:
            for key in keys:
                self._doubtful.pop(key, None)
                self._leaving.discard(key)
                record = self._records.get(key)
                if record is None or record.entry.account == NOBODY:
                    self._drop(key)
                    self._left.add(key)

    def forget(self, keys: Iterable[ObjectKey]) -> int:
        with self._lock:
            return sum(self._drop(key) for key in keys)

    def forget_settled(self, keys: Iterable[ObjectKey]) -> int:
        """Forget those of the keys that are not on their way in just now."""
        with self._lock:
            records = self._records
            return self.forget([k for k in keys if k in records and not records[k].pending])

    def forget_tags(self, tags: Collection[Tag]) -> int:
        """Forget every object of the folders that hold one of the tags.

        Until `cleared` says that they are gone their bytes count on.
        """
        with self._lock:
            folders = [name for name in self._folders if holds_any(name, tags)]
            gone = [key for name in folders for key in self._folders[name]]
            self._doubtful.update((key, self._records[key].entry.size_bytes) for key in gone)
            return self.forget(gone)

    def forget_unlisted(self, listed: Collection[ObjectKey], since: float) -> int:
        """Forget what a listing that began at `since` (monotonic) did not show."""
        with self._lock:
            gone = [
                key
                for key, record in self._records.items()
                if not record.pending and record.confirmed_at < since and key not in listed
            ]
            return self.forget(gone)

    def over(self) -> list[ObjectKey]:
        """What is past its retention. Folder by folder: look-ups need not wait for all."""
        with self._lock:
            names = list(self._folders)
        gone: list[ObjectKey] = []
        for name in names:
            with self._lock:
                for key in self._folders.get(name, ()):
                    record = self._records[key]
                    if not record.pending and self._over(key, record):
                        gone.append(key)
        return gone

    def surplus(self) -> list[ObjectKey]:
        """Forget and return what must go for the limit to hold: others wrote, or it was lowered."""
        with self._lock:
            excess = self.used_bytes - self._capacity
            victims = self._policy.victims(excess, NOBODY) if excess > 0 else None
            self.forget(victims or ())
            return victims or []

    def is_over(self, stat: ObjectStat) -> bool:
        """Whether a listed object, known here or not, is past its retention."""
        with self._lock:
            record = self._records.get(stat.key)
            if record is not None and not record.pending and self._over(stat.key, record):
                return True
        return self._stale(stat.key, self._age(stat.stored_at))

    def parent(self, block_hash: bytes | None, group_idx: int) -> ObjectKey | None:
        with self._lock:
            key = None if block_hash is None else self._parents.get((block_hash, group_idx))
            return key if key in self._records else None

    def is_parent(self, block_hash: bytes, group_idx: int, key: ObjectKey) -> None:
        """Note where a block lies, for the children that come after it."""
        with self._lock:
            while len(self._parents) > max(1024, 2 * len(self._records)):
                del self._parents[next(iter(self._parents))]
            self._parents[block_hash, group_idx] = key

    def any_key(self) -> ObjectKey | None:
        """Some object that is there; None where there is none."""
        with self._lock:
            newest = reversed(self._records)
            return next((key for key in newest if self.get(key) is not None), None)

    def records(self) -> Mapping[ObjectKey, Record]:
        with self._lock:
            return dict(self._records)

    def bytes_by_account(self) -> Counter[bytes]:
        with self._lock:
            used: Counter[bytes] = Counter()
            for record in self._records.values():
                used[record.entry.account] += record.entry.size_bytes
            return used

    def _victims(self, entry: Entry[ObjectKey]) -> list[ObjectKey] | None:
        excess = self.used_bytes + entry.size_bytes - self._capacity
        if excess <= 0:
            return []
        protected = () if entry.parent is None else (entry.parent,)
        return self._policy.victims(excess, entry.account, protected)

    def _add(self, key: ObjectKey, entry: Entry[ObjectKey], stored_at: float, uses: int) -> None:
        now = self._monotonic()
        self._left.back(key)
        self._records[key] = Record(entry, stored_at, now, self._age(stored_at), now, now, uses)
        self._folders.setdefault(key.chain, set()).add(key)
        self._policy.insert(key, entry)

    def _drop(self, key: ObjectKey) -> bool:
        if self._records.pop(key, None) is None:
            return False
        self._policy.remove(key)
        self.residents.drop(key)
        names = self._folders[key.chain]
        names.discard(key)
        if not names:
            del self._folders[key.chain]
        self._left.add(key)
        return True

    def _age(self, stored_at: float) -> float:
        age = self._clock() - stored_at
        return float("inf") if age < -SKEW_SECONDS else max(0.0, age)

    def _over(self, key: ObjectKey, record: Record) -> bool:
        if record.pending:
            return False
        seen = record.age_seen + self._monotonic() - record.seen_at
        return self._stale(key, max(seen, self._age(record.stored_at)))

    def _stale(self, key: ObjectKey, age: float) -> bool:
        retention = retention_of(key.chain)
        return retention is not None and age > retention
