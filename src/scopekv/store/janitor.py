"""What keeps a tier in order when nobody asks: recovery, retention, limits, probes, the manifest.

A janitor cannot race a reader (T7): an object that it deletes between look-up and load is a miss.
"""

from __future__ import annotations

import logging
import mmap
import threading
from collections.abc import Callable, Sequence

from scopekv.core.chains import Chain, Link, folder
from scopekv.core.scopes import ScopeId
from scopekv.errors import Corrupt, Unavailable
from scopekv.ports import ObjectKey, ObjectStat
from scopekv.store import manifest
from scopekv.store.circuit import Circuit
from scopekv.store.keyring import Keyring
from scopekv.store.mover import Parts
from scopekv.store.presence import PresenceChecks
from scopekv.store.purges import BATCH, batches
from scopekv.store.settings import TierSettings

log = logging.getLogger("scopekv.tier")

PROBE_SECONDS_KEPT = 60
YIELD_EVERY = 256  # objects of a listing
YIELD_SECONDS = 0.0005
LISTING_EVERY = 10  # a store of our own is listed again so many times less often than a shared one
_PROBE: Chain = (Link(ScopeId(bytes(16)), 0),)
PROBE_FOLDER = folder(_PROBE, PROBE_SECONDS_KEPT) or ""


class Janitor:
    """One background thread, and the same work for whoever calls `expire` or `turn`."""

    def __init__(
        self,
        parts: Parts,
        checks: PresenceChecks,
        keyring: Keyring,
        settings: TierSettings,
        clock: Callable[[], float],
        probe_name: str,
    ) -> None:
        self._parts = parts
        self._checks = checks
        self._keyring = keyring
        self._settings = settings
        self._clock = clock
        self._probe_key = ObjectKey(PROBE_FOLDER, probe_name)
        self._wake = parts.wake
        self._scratch = memoryview(mmap.mmap(-1, parts.objects.object_bytes))
        self._closing = threading.Event()
        self._working = threading.Lock()
        self._listed_at = float("-inf")  # monotonic
        self._tidied_at = float("-inf")
        self._noted_at = parts.monotonic()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="scopekv-tier-janitor", daemon=True)
        self._thread.start()

    def close(self, seconds: float) -> None:
        self._closing.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(seconds)

    def expire(self) -> int:
        """Delete what is over, listed or known; return how many. Blocking, bounded by the store."""
        if not self._working.acquire(blocking=False):
            return 0
        try:
            if self._listing_due():
                removed = self._inventory()
            else:
                removed = self._delete(self._parts.index.over(), "expired")
            return removed + self._delete(self._quarantine_over(), "expired")
        except Unavailable:
            self._parts.trouble(self._parts.reading, self._parts.writing)
            return 0
        finally:
            self._working.release()

    def save(self) -> None:
        """Write the manifest; without it only recency is lost."""
        path = self._settings.manifest
        if path is None or self._checks.listed_at is None:
            return
        self._noted_at = self._parts.monotonic()
        try:
            manifest.save(path, self._parts.index)
        except Unavailable as error:
            self._parts.counts.add("errors")
            log.warning("%s", error)

    def _run(self) -> None:
        while not self._closing.is_set():
            self.turn()
            self._wake.wait(self._pause())
            self._wake.clear()

    def turn(self) -> None:
        """Do what is due."""
        now = self._parts.monotonic()
        try:
            self._keyring.sweep()  # a store out of reach keeps no key alive
            self._probe()
            if now - self._tidied_at >= self._settings.janitor_seconds and not self._suspended():
                self._tidied_at = now
                self._tidy()
        except Exception:
            log.exception("the janitor of a tier failed where it should not")

    def _pause(self) -> float:
        dues = [circuit.probe_due() for circuit in (self._parts.reading, self._parts.writing)]
        every = self._settings.janitor_seconds
        rest = every if self._suspended() else self._tidied_at + every - self._parts.monotonic()
        return max(0.005, min([rest, *(due for due in dues if due is not None)]))

    def _suspended(self) -> bool:
        return self._parts.reading.suspended

    def _tidy(self) -> None:
        self.expire()
        doubtful = self._parts.index.doubtful()
        if doubtful and not self._parts.writing.suspended:
            self._clear(doubtful)
        self._measure()
        if self._parts.monotonic() - self._noted_at >= self._settings.manifest_seconds:
            self.save()

    def _clear(self, keys: list[ObjectKey]) -> None:
        try:
            for batch in batches(keys, BATCH):
                self._parts.store.delete(batch)
                self._parts.index.cleared(batch)
        except Unavailable:
            self._parts.trouble(self._parts.writing)

    def _measure(self) -> None:
        """What a round trip takes now, for the decision to load or recompute."""
        began = self._parts.monotonic()
        try:
            self._parts.store.present([self._probe_key])
            self._parts.meter.called(self._parts.monotonic() - began)
            if began - self._parts.meter.measured_at >= self._settings.janitor_seconds:
                self._measure_load()
        except Unavailable:
            self._parts.trouble(self._parts.reading, self._parts.writing)

    def _measure_load(self) -> None:
        """Read one object, so that a tier which became fast again is found out (L9)."""
        parts = self._parts
        key = parts.index.any_key()
        if key is None:
            return
        began = parts.monotonic()
        size = parts.store.get(key, self._scratch)
        if size is not None and 0 < size <= self._scratch.nbytes:
            parts.meter.loaded(size, parts.monotonic() - began)

    # --- listing --------------------------------------------------------------------------------

    def _quarantine_over(self) -> list[ObjectKey]:
        """Quarantined bytes are kept no longer than sound ones. Their names go as a whole: what was
        written under one again is gone early, which costs a miss."""
        parts = self._parts
        return [
            stat.key
            for stat in parts.store.quarantined()
            if parts.index.is_over(stat) or parts.fence.holds(stat.key.chain)
        ]

    def _listing_due(self) -> bool:
        every = self._settings.inventory_seconds
        if not self._settings.shared:
            every *= LISTING_EVERY
        return self._parts.monotonic() - self._listed_at >= every

    def _inventory(self) -> int:
        """Compare the whole store with the index; return how many objects were over."""
        parts, index = self._parts, self._parts.index
        began, began_at = parts.monotonic(), self._clock()
        over: list[ObjectKey] = []
        listed: dict[ObjectKey, ObjectStat] = {}
        for number, stat in enumerate(parts.store.objects()):
            self._yield(number)
            if index.is_over(stat) or parts.fence.holds(stat.key.chain):
                over.append(stat.key)
            elif stat.key.chain != PROBE_FOLDER:
                listed[stat.key] = stat
        noted = self._noted() if self._checks.listed_at is None else {}
        by_age = sorted(listed.values(), key=lambda stat: stat.stored_at)
        unnoted = [stat for stat in by_age if stat.key not in noted]
        again = [listed[key] for key in noted if key in listed]
        for number, stat in enumerate((*unnoted, *again)):
            self._yield(number)
            self._note(stat, noted, began)
        index.forget_unlisted(listed, began)
        self._listed_at = began
        self._checks.listed_at = began_at
        removed = self._delete(over, "expired")
        self._delete(index.surplus(), "evicted")
        return removed

    def _yield(self, number: int) -> None:
        """Leave the interpreter to the scheduler thread now and then; stop for a closing tier."""
        if number % YIELD_EVERY == 0 and self._thread is not None:
            self._closing.wait(YIELD_SECONDS)
        if self._closing.is_set():
            raise Unavailable("the tier is closing")

    def _note(self, stat: ObjectStat, noted: manifest.Noted, since: float) -> None:
        entry, uses, block = noted.get(stat.key, (None, 0, None))
        if entry is not None and entry.size_bytes != stat.size_bytes:
            entry = None
        self._parts.index.found(stat, entry, uses, since=since)
        if block is not None:
            self._parts.index.is_block(stat.key, block)

    def _noted(self) -> manifest.Noted:
        if self._settings.manifest is None:
            return {}
        try:
            return manifest.load(self._settings.manifest)
        except (Corrupt, Unavailable) as error:
            self._parts.counts.add("manifest_bad")
            log.warning("%s; recency starts anew", error)
            return {}

    def _delete(self, keys: Sequence[ObjectKey], counter: str) -> int:
        removed = 0
        for start in range(0, len(keys), BATCH):
            batch = keys[start : start + BATCH]
            try:
                removed += self._parts.store.delete(batch)
            except Unavailable:
                self._parts.index.doubt(keys[start:], self._parts.objects.object_bytes)
                raise
            self._parts.index.forget_settled(batch)
        self._parts.counts.add(counter, removed)
        return removed

    # --- recovery -------------------------------------------------------------------------------

    def _probe(self) -> None:
        parts = self._parts
        if parts.reading.probe_due() == 0.0:
            parts.reading.probed(self._reads())
        if parts.writing.probe_due() == 0.0 and not parts.reading.suspended:
            parts.writing.probed(self._writes())

    def _reads(self) -> bool:
        store = self._parts.store
        try:
            store.present([self._probe_key])
            store.get(self._probe_key, memoryview(bytearray(1)))
        except Unavailable:
            return False
        return True

    def _writes(self) -> bool:
        """Whether a whole block's bytes can be kept again: a full disk takes small ones."""
        try:
            self._parts.store.put(self._probe_key, [bytes(self._parts.objects.object_bytes)])
            self._parts.store.delete([self._probe_key])
        except Unavailable:
            return False
        return True


def circuits(settings: TierSettings, monotonic: Callable[[], float]) -> tuple[Circuit, Circuit]:
    """One for reading and one for writing: a full disk still serves."""
    first, longest = settings.recovery_seconds, settings.recovery_seconds_max
    return Circuit(first, longest, monotonic), Circuit(first, longest, monotonic)
