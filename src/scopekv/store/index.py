"""What a tier keeps, as far as this process knows: room, uses, and the hard byte limit."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from scopekv.core.chains import Tag
from scopekv.core.eviction import Entry, EvictionPolicy
from scopekv.core.leases import NOBODY
from scopekv.ports import ObjectKey, ObjectStat
from scopekv.store.departures import Departures
from scopekv.store.records import Record, Records
from scopekv.store.residents import Residents


@dataclass(slots=True)
class Pin:
    """A hold on one object; `record` is None once it is given back."""

    key: ObjectKey
    record: Record | None


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
        self._records = Records(clock, monotonic)
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
            gone = record is None or record.pending or self._records.over(key, record)
            return None if gone else record

    def keeps(self, key: ObjectKey) -> bool:
        """Whether the object is there, or on its way in."""
        with self._lock:
            record = self._records.get(key)
            return record is not None and not self._records.over(key, record)

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

    def pin(self, key: ObjectKey) -> Pin | None:
        """Keep an object from being evicted until `unpin`; None where it is not there."""
        with self._lock:
            record = self._records.get(key)
            if record is None:
                return None
            self._policy.pin(key)
            return Pin(key, record)

    def unpin(self, pin: Pin | None) -> None:
        """Give a pin back, once: a call that was given up comes back late.

        Where the object left meanwhile, what is there now under its name is somebody else's.
        """
        if pin is None:
            return
        with self._lock:
            record, pin.record = pin.record, None
            if record is not None and self._records.get(pin.key) is record:
                self._policy.unpin(pin.key)

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
            self._records.stored_now(record)
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
            gone = self._records.tagged(tags)
            self._doubtful.update((key, self._records[key].entry.size_bytes) for key in gone)
            return self.forget(gone)

    def forget_unlisted(self, listed: Collection[ObjectKey], since: float) -> int:
        """Forget what a listing that began at `since` (monotonic) did not show."""
        with self._lock:
            unseen = self._records.unconfirmed(since)
            return self.forget([key for key in unseen if key not in listed])

    def over(self) -> list[ObjectKey]:
        """What is past its retention. Folder by folder: look-ups need not wait for all."""
        with self._lock:
            names = self._records.folders()
        gone: list[ObjectKey] = []
        for name in names:
            with self._lock:
                gone += self._records.over_in(name)
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
            if record is not None and self._records.over(stat.key, record):
                return True
            return self._records.listed_over(stat)

    def parent(self, block_hash: bytes | None, group_idx: int) -> ObjectKey | None:
        with self._lock:
            key = None if block_hash is None else self._parents.get((block_hash, group_idx))
            return key if key is not None and key in self._records else None

    def is_parent(self, block_hash: bytes, group_idx: int, key: ObjectKey) -> None:
        """Note where a block lies, for the children that come after it."""
        with self._lock:
            while len(self._parents) > max(1024, 2 * len(self._records)):
                del self._parents[next(iter(self._parents))]
            self._parents[block_hash, group_idx] = key

    def any_key(self) -> ObjectKey | None:
        """Some object that is there; None where there is none."""
        with self._lock:
            newest = self._records.newest()
            return next((key for key in newest if self.get(key) is not None), None)

    def records(self) -> Mapping[ObjectKey, Record]:
        with self._lock:
            return self._records.all()

    def bytes_by_account(self) -> Counter[bytes]:
        with self._lock:
            return self._records.bytes_by_account()

    def _victims(self, entry: Entry[ObjectKey]) -> list[ObjectKey] | None:
        excess = self.used_bytes + entry.size_bytes - self._capacity
        if excess <= 0:
            return []
        protected = () if entry.parent is None else (entry.parent,)
        return self._policy.victims(excess, entry.account, protected)

    def _add(self, key: ObjectKey, entry: Entry[ObjectKey], stored_at: float, uses: int) -> None:
        self._left.back(key)
        self._records.add(key, entry, stored_at, uses)
        self._policy.insert(key, entry)

    def _drop(self, key: ObjectKey) -> bool:
        if not self._records.drop(key):
            return False
        self._policy.remove(key)
        self.residents.drop(key)
        self._left.add(key)
        return True
