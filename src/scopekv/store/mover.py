"""Moves one block between a slot and the store, on a worker thread.

Why a load does not open straight into the slot: opening writes plaintext before the tag is
checked, and the slot of an abandoned load may be another request's the next moment (T2). The
plaintext stays in the worker's buffer until it is verified; the copy costs a few per cent.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from scopekv.core.eviction import Entry
from scopekv.errors import Corrupt, Unavailable
from scopekv.ports import ObjectKey, ObjectStore
from scopekv.store.circuit import Circuit
from scopekv.store.counts import Counts, Meter
from scopekv.store.fence import Fence
from scopekv.store.index import Index, Pin
from scopekv.store.jobs import Job, JobBoard
from scopekv.store.sealed_objects import Address, SealedObjects
from scopekv.store.workers import Desk, Urgency, Workers

CORRUPT_IN_A_ROW_MAX = 8


@dataclass(slots=True)
class Parts:
    """What the parts of one tier share."""

    store: ObjectStore
    objects: SealedObjects
    index: Index
    board: JobBoard
    fence: Fence
    counts: Counts
    meter: Meter
    reading: Circuit
    writing: Circuit
    monotonic: Callable[[], float]
    wake: threading.Event = field(default_factory=threading.Event)  # the janitor

    def trouble(self, *circuits: Circuit) -> None:
        """Count an error and suspend what it concerns."""
        self.counts.add("errors")
        for circuit in circuits:
            if circuit.trip():
                self.counts.add("suspensions")
                self.wake.set()

    def give_up_hung(self, workers: Workers) -> None:
        """End the jobs of calls that hang, and suspend the tier; it may be asked at any time."""
        stalled = workers.give_up_stalled()
        if stalled:
            self.counts.add("stalls", len(stalled))
            reads = any(task.urgency is not Urgency.STORE for task in stalled)
            self.trouble(self.writing, *((self.reading,) if reads else ()))
            for task in (*stalled, *workers.drop(None, None if reads else Urgency.STORE)):
                task.failed()
        if workers.exhausted:
            for task in workers.drop(None):
                task.failed()


class Mover:
    """The two directions. Nothing here raises for trouble of a store."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._corrupt_in_a_row = 0

    def load(self, job: Job, index: int, address: Address, pin: Pin | None, desk: Desk) -> None:
        """Fetch, check, and only then copy into the slot."""
        parts = self._parts
        loaded = None
        try:
            if job.view(index) is not None and not parts.reading.suspended:
                loaded = self._fetch(job, index, address, desk)
        except Unavailable:
            parts.trouble(parts.reading, parts.writing)
        except Corrupt:
            self._corrupt(address.key, desk)
        finally:
            parts.index.unpin(pin)
            parts.counts.add("load_misses" if loaded is None else "loaded")
            parts.board.settle(job, index, loaded)
            if loaded is not None and (job.succeeded == 1 or job.is_whole):
                moved = loaded if job.succeeded == 1 else job.size_bytes
                parts.meter.loaded(moved, parts.monotonic() - job.started)

    def _fetch(self, job: Job, index: int, address: Address, desk: Desk) -> int | None:
        parts = self._parts
        size = parts.store.get(address.key, desk.buffer)
        desk.beat()
        if size is None:
            parts.index.forget([address.key])
            return None
        if size != parts.objects.object_bytes:
            raise Corrupt(f"an object has {size} bytes, not {parts.objects.object_bytes}")
        plaintext = parts.objects.open(address, desk.buffer[:size])
        self._corrupt_in_a_row = 0
        parts.counts.add("bytes_read", size)
        if not job.write(index, plaintext, lambda: parts.objects.current(address)):
            return None
        return plaintext.nbytes

    def _corrupt(self, key: ObjectKey, desk: Desk) -> None:
        """A miss, counted, out of sight, and forgotten, so that the next store writes it again."""
        parts = self._parts
        parts.counts.add("corrupt")
        parts.index.forget([key])
        desk.beat()
        try:
            parts.store.quarantine(key)
            parts.index.cleared([key])
            parts.counts.add("quarantined")
        except Unavailable:
            parts.index.doubt([key], parts.objects.object_bytes)
            parts.trouble(parts.writing)
        self._corrupt_in_a_row += 1
        if self._corrupt_in_a_row >= CORRUPT_IN_A_ROW_MAX:
            self._corrupt_in_a_row = 0
            parts.trouble(parts.reading, parts.writing)

    def store(
        self, job: Job, index: int, address: Address, entry: Entry[ObjectKey], desk: Desk
    ) -> None:
        """Seal from the slot, make room, put."""
        parts = self._parts
        stored = None
        try:
            if parts.index.keeps(address.key):
                stored = 0
            elif not parts.writing.suspended and parts.objects.current(address):
                stored = self._put(job, index, address, entry, desk)
        except Unavailable:
            parts.trouble(parts.writing)
        finally:
            parts.board.settle(job, index, stored)

    def _put(
        self, job: Job, index: int, address: Address, entry: Entry[ObjectKey], desk: Desk
    ) -> int | None:
        parts = self._parts
        view = job.view(index)
        if view is None:
            return None
        sealed = parts.objects.seal(address, view, desk.buffer)
        view = None
        if job.view(index) is None:  # the slot may have been another's while it was sealed
            return None
        victims = parts.index.reserve(address.key, entry)
        if victims is None:
            parts.counts.add("no_room")
            return 0
        if not self._evict(victims, desk) or not parts.fence.begin_put(address.key.chain):
            parts.index.forget([address.key])
            parts.index.cleared([address.key])  # a purge may have counted it as being there
            return None
        if not self._put_begun(address.key, sealed):
            return None
        parts.index.is_block(address.key, address.block)
        return entry.size_bytes

    def _put_begun(self, key: ObjectKey, sealed: memoryview) -> bool:
        """Put what is sealed; take it back where its folder was purged meanwhile."""
        parts = self._parts
        fenced = True
        try:
            parts.store.put(key, [sealed])
            parts.counts.add("stored")
            parts.counts.add("bytes_written", sealed.nbytes)
            if parts.fence.holds(key.chain):
                parts.store.delete([key])
                parts.index.cleared([key])
        except Unavailable:
            parts.index.doubt([key], sealed.nbytes)
            raise
        finally:
            fenced = parts.fence.end_put(key.chain)
        if fenced:
            parts.index.forget([key])
            return False
        if not parts.index.commit(key):  # forgotten while it was put: nobody counts it now
            parts.index.doubt([key], sealed.nbytes)
            return False
        return True

    def _evict(self, victims: list[ObjectKey], desk: Desk) -> bool:
        """Delete what must go first, so that the limit holds at every moment."""
        if not victims:
            return True
        parts = self._parts
        try:
            parts.store.delete(victims)
        except Unavailable:
            parts.index.doubt(victims, parts.objects.object_bytes)
            parts.trouble(parts.writing)
            return False
        parts.index.cleared(victims)
        parts.counts.add("evicted", len(victims))
        desk.beat()
        return True
