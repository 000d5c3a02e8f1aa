"""Whether a store that others write to has blocks: asked in the background, kept shortly."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence

from scopekv.errors import Unavailable
from scopekv.ports import ObjectKey, ObjectStat
from scopekv.store.blocks import Presence
from scopekv.store.mover import Parts
from scopekv.store.purges import batches
from scopekv.store.settings import TierSettings
from scopekv.store.workers import Desk, Task, Urgency, Workers

ABSENT_MAX = 65_536
ONE_ROUND = 8  # keys; of more S3 asks for so many at once, round after round
CHECKED_AT_ONCE = 8 * ONE_ROUND


class PresenceChecks:
    """Answers from the index and from memory at once; asks the store on a worker."""

    def __init__(self, parts: Parts, workers: Workers, settings: TierSettings) -> None:
        self._parts = parts
        self._workers = workers
        self._shared = settings.shared
        self._present_seconds = settings.presence_seconds
        self._absent_seconds = settings.absence_seconds
        self._lock = threading.Lock()
        self._checking: set[ObjectKey] = set()
        self._absent: OrderedDict[ObjectKey, float] = OrderedDict()
        self.listed_at: float | None = None  # wall clock as the last whole listing began

    def ask(self, keys: Sequence[ObjectKey]) -> list[Presence]:
        """Never blocks. One check for all keys that nothing is known of."""
        now = self._parts.monotonic()
        answers: list[Presence] = []
        unknown: list[ObjectKey] = []
        for key in keys:
            record = self._parts.index.get(key)
            if record is not None and (
                not self._shared or now - record.confirmed_at < self._present_seconds
            ):
                answers.append(Presence.PRESENT)
            elif not self._shared and self.listed_at is not None:
                answers.append(Presence.ABSENT)
            else:
                with self._lock:
                    absent = self._absent.get(key, now) > now
                answers.append(Presence.ABSENT if absent else Presence.UNKNOWN)
                if not absent:
                    unknown.append(key)
        if unknown and not self._start(unknown):
            return [Presence.ABSENT if a is Presence.UNKNOWN else a for a in answers]
        return answers

    def _start(self, keys: list[ObjectKey]) -> bool:
        with self._lock:
            fresh = [key for key in keys if key not in self._checking]
            self._checking.update(fresh)
        if not fresh:
            return True
        task = Task(
            Urgency.CHECK,
            lambda desk: self._check(fresh, desk),
            lambda: self._ended(fresh),
        )
        if self._workers.put(task):
            return True
        self._ended(fresh)
        return False

    def _ended(self, keys: Sequence[ObjectKey]) -> None:
        with self._lock:
            self._checking.difference_update(keys)

    def _check(self, keys: list[ObjectKey], desk: Desk) -> None:
        """Ask for a long prompt bit by bit, its beginning first: no call takes long for its size.

        Before the first listing folders are walked instead, each once.
        """
        parts = self._parts
        try:
            for some in batches(keys, len(keys) if self.listed_at is None else CHECKED_AT_ONCE):
                if parts.reading.suspended:
                    return
                began = parts.monotonic()
                self._note(some, self._stats(some, desk), began)
                desk.beat()
        except Unavailable:
            parts.trouble(parts.reading, parts.writing)
        finally:
            self._ended(keys)

    def _note(
        self, keys: list[ObjectKey], found: dict[ObjectKey, ObjectStat], began: float
    ) -> None:
        parts = self._parts
        missing = [key for key in keys if key not in found]
        for stat in found.values():
            if parts.index.is_over(stat) or parts.fence.holds(stat.key.chain):
                missing.append(stat.key)
            else:
                parts.index.found(stat, since=began)
        self._remember_absent(missing)

    def _stats(self, keys: list[ObjectKey], desk: Desk) -> dict[ObjectKey, ObjectStat]:
        """Those that are there, with the oldest that they can be.

        What is there and was not in the last whole listing came after that began. Before the
        first one, folders are listed: `present` tells no age, and retention must hold.
        """
        parts, listed_at = self._parts, self.listed_at
        if listed_at is None:
            wanted = frozenset(keys)
            found = {}
            for folder in {key.chain for key in keys}:
                for number, stat in enumerate(parts.store.objects(folder)):
                    if number % CHECKED_AT_ONCE == 0:
                        desk.beat()
                    if stat.key in wanted:
                        found[stat.key] = stat
                desk.beat()
            return found
        began = parts.monotonic()
        there = parts.store.present(keys)
        if len(keys) <= ONE_ROUND:
            parts.meter.called(parts.monotonic() - began)
        size = parts.objects.object_bytes
        return {key: ObjectStat(key, size, listed_at) for key in there}

    def _remember_absent(self, keys: Sequence[ObjectKey]) -> None:
        self._parts.index.forget_settled(keys)
        until = self._parts.monotonic() + self._absent_seconds
        with self._lock:
            for key in keys:
                self._absent[key] = until
                self._absent.move_to_end(key)
            while len(self._absent) > ABSENT_MAX:
                self._absent.popitem(last=False)
