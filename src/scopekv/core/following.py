"""Following one instance: from its numbered batches and snapshots to what the index says of it.

    next = n         batch n            applied
                     batch below n      repeated: dropped; of a later time: a new life of the engine
                     batch above n      a gap: kept, and the instance is unsure until it closes
    no next          any batch          kept, until a snapshot says where to begin
                     batch 0            a new life: it held nothing before

Where an instance is unsure, nobody may choose it for what it holds (case R4). A snapshot is exact
after all batches below its number; those that came meanwhile are applied after it, by number.
The engine's wall clock tells lives apart: a batch sent before the present life or snapshot began
is an old one, whatever its number. A clock set back costs snapshots, not truth.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from enum import StrEnum

from scopekv.core.events import Batch, Cleared, Medium, Snapshot, Stored
from scopekv.core.locations import SLICE, LocationIndex

GAP_SECONDS = 0.05  # how long batches may come in another order before one counts as lost
BEHIND_SECONDS = 1.0  # how long batches that the engine counts may be on their way
KEPT_BLOCKS_MAX = 500_000  # of batches that wait, or came while a snapshot is under way
KEPT_BATCHES_MAX = 10_000
RETRY_SECONDS = 0.25  # between two snapshots of an unsure instance
CALM_SECONDS = 30.0  # and of a sure one
_NEVER = float("-inf")


class Doubt(StrEnum):
    """Why an instance is unsure."""

    STARTING = "starting"  # no snapshot yet
    RESTARTED = "restarted"  # a new life, whose first batches were not seen
    GAP = "gap"  # a batch is missing
    BEHIND = "behind"  # the engine counts more batches than came
    CLEARED = "cleared"  # engine memory was emptied: host memory too?
    BUS_LOST = "bus_lost"  # the connection for events broke
    UNREACHABLE = "unreachable"  # it does not answer
    NO_EVENTS = "no_events"  # it publishes none, or nobody said where


class Follower:
    """One instance as followed. `now` is monotonic seconds throughout.

    Invariant while sure: the index holds of this instance exactly what snapshots and batches up to
    `next_sequence` say, but for blocks that found no room.
    """

    def __init__(self, index: LocationIndex, name: str) -> None:
        index.join(name)
        self._index, self._name = index, name
        self.instance = ""  # the engine's name of this life; empty: not told yet
        self.next_sequence: int | None = None
        self.counts: Counter[str] = Counter()
        self._doubt: Doubt | None = Doubt.STARTING
        self._newest = self._since = _NEVER  # engine's clock: newest batch; begin of what counts
        self._kept: dict[int, Batch] = {}
        self._kept_blocks = 0
        self._covered: list[Batch] = []  # kept as the snapshot under way was asked for
        self._gap_since: float | None = None
        self._behind_since: float | None = None
        self._published = 0
        self._life = 0  # changes with everything that makes a snapshot under way useless
        self._under_way = False
        self._wish = False
        self._asked_at = _NEVER

    @property
    def doubt(self) -> Doubt | None:
        """Why it is unsure; None: what the index says of it holds."""
        if self._doubt is None and self._gap_since is not None:
            return Doubt.GAP
        return self._doubt

    @property
    def sure(self) -> bool:
        return self.doubt is None

    # --- batches --------------------------------------------------------------------------------

    def take(self, batch: Batch, now: float) -> None:
        """Take what came from the bus. Cost: that of the index for its blocks."""
        later = batch.sent > self._newest
        known = self.next_sequence
        passed = known is not None and batch.sequence < known
        if later and (batch.sequence == 0 or passed):
            self._new_life(batch)
        elif passed or batch.sent < self._since:
            self.counts["repeated"] += 1
            return
        self._newest = max(self._newest, batch.sent)
        if self.next_sequence == batch.sequence:
            self._apply(batch)
            if self._under_way:
                self._keep(batch)
            self._catch_up(now)
        else:
            self._keep(batch)
            if self.next_sequence is not None and self._gap_since is None:
                self.counts["gaps"] += 1
                self._gap_since = now

    def _new_life(self, first: Batch) -> None:
        """The engine started anew: its old blocks are forgotten at once (case R3)."""
        if self.next_sequence is not None:
            self.counts["restarts"] += 1
        self._forget(Doubt.RESTARTED)
        self.instance = ""
        self._since = first.sent
        if first.sequence == 0:
            self.next_sequence, self._doubt = 0, None

    def _catch_up(self, now: float) -> None:
        """Apply what waited for the batches just applied."""
        advanced = False
        while (batch := self._kept.get(self.next_sequence or 0)) is not None:
            if not self._under_way:
                self._drop(batch)
            self._apply(batch)
            advanced = True
        after = self.next_sequence or 0
        waiting = any(sequence > after for sequence in self._kept)
        if not waiting:
            self._gap_since = None
        elif self._gap_since is None or advanced:
            self._gap_since = now
        if after >= self._published:
            self._behind_since = None

    def _apply(self, batch: Batch) -> None:
        index, name = self._index, self._name
        self.next_sequence = batch.sequence + 1
        self._newest = max(self._newest, batch.sent)
        for event in batch.events:
            if isinstance(event, Stored):
                index.add(name, event.medium, event.hashes)
                self.counts["stored"] += len(event.hashes)
            elif isinstance(event, Cleared):
                index.clear(name, Medium.ENGINE)
                if index.size(name, Medium.HOST) and self._doubt is None:
                    self._doubt = Doubt.CLEARED
            else:
                orphans = index.remove(name, event.medium, event.hashes)
                self.counts["removed"] += len(event.hashes)
                if orphans and not index.partial(name):
                    # Right as to these blocks, since they are gone; wrong somewhere before.
                    self.counts["orphans"] += orphans
                    self._wish = True

    def _keep(self, batch: Batch) -> None:
        """Keep a batch for later. Of too many the oldest go, which a snapshot makes good."""
        old = self._kept.get(batch.sequence)
        if old is not None:
            self.counts["repeated"] += 1
            if old.sent >= batch.sent:
                return
            self._drop(old)
        self._kept[batch.sequence] = batch
        self._kept_blocks += batch.blocks
        while len(self._kept) > KEPT_BATCHES_MAX or self._kept_blocks > KEPT_BLOCKS_MAX:
            self.counts["overflowed"] += 1
            self._drop(self._kept[min(self._kept)])

    def _drop(self, batch: Batch) -> None:
        del self._kept[batch.sequence]
        self._kept_blocks -= batch.blocks

    # --- what is heard otherwise ----------------------------------------------------------------

    def named(self, instance: str) -> None:
        """The engine told its name: new at every start, so another one is another life."""
        if self.instance and instance != self.instance:
            self.counts["restarts"] += 1
            self._forget(Doubt.RESTARTED)
            self._since = self._newest
        elif not self.instance and self.next_sequence is not None:
            self._wish = True  # the batch 0 that it began with may be of the life before this one
        self.instance = instance

    def heard(self, instance: str, sequence: int | None, now: float) -> None:
        """The engine told its name and how many batches it has published so far."""
        self.named(instance)
        if sequence is None:
            self.lost(Doubt.NO_EVENTS)
            return
        if self._doubt is Doubt.NO_EVENTS:
            self._doubt = Doubt.STARTING
        self._published = max(self._published, sequence)
        if self.next_sequence is not None and sequence > self.next_sequence:
            self._behind_since = now if self._behind_since is None else self._behind_since

    def lost(self, doubt: Doubt) -> None:
        """Be unsure from now on; a snapshot ends it. Nothing is forgotten."""
        self._doubt = doubt
        self.next_sequence = None
        self._life += 1
        self._gap_since = self._behind_since = None

    def _forget(self, doubt: Doubt) -> None:
        self._index.forget(self._name)
        self.lost(doubt)
        self._kept.clear()
        self._kept_blocks = 0
        self._published = 0

    # --- snapshots ------------------------------------------------------------------------------

    def due(self, now: float) -> bool:
        """Whether to ask for a snapshot now. Notices what is late, so call it often."""
        if self._gap_since is not None and now - self._gap_since >= GAP_SECONDS:
            self.lost(Doubt.GAP)
        if self._behind_since is not None and now - self._behind_since >= BEHIND_SECONDS:
            self.lost(Doubt.BEHIND)
        if self._under_way or self._doubt is Doubt.NO_EVENTS:
            return False
        if self._doubt is not None:
            return now - self._asked_at >= RETRY_SECONDS
        refill = self._index.partial(self._name) and self._index.roomy
        return (self._wish or refill) and now - self._asked_at >= CALM_SECONDS

    def begin(self, now: float) -> int:
        """A snapshot is asked for: from now on batches are kept. Give the number to `restore`."""
        self._under_way = True
        self._covered = list(self._kept.values())
        self._asked_at = now
        self.counts["snapshots_asked"] += 1
        return self._life

    def failed(self) -> None:
        """The snapshot that was asked for does not come."""
        self._under_way = False
        if self.next_sequence is not None:
            for batch in [b for s, b in self._kept.items() if s < (self.next_sequence or 0)]:
                self._drop(batch)

    def restore(self, life: int, snapshot: Snapshot, now: float) -> Iterator[None]:
        """Make the snapshot what is known, then apply what came since. In slices: run all of them.

        A snapshot of another life than the one it was asked in changes nothing.
        """
        blocks, sequence = snapshot.blocks, snapshot.sequence
        if life != self._life or blocks is None or sequence is None:
            self.counts["snapshots_late"] += 1
            self.failed()
            return
        load = self._index.load(self._name)
        for medium, hashes in blocks.items():
            for start in range(0, len(hashes), SLICE):
                load.add(medium, hashes[start : start + SLICE])
                yield
                if life != self._life:
                    load.abandon()
                    self.counts["snapshots_late"] += 1
                    self.failed()
                    return
        load.commit()
        self.counts["snapshots"] += 1
        self._under_way = self._wish = False
        self.instance, self.next_sequence, self._doubt = snapshot.instance, sequence, None
        self._gap_since = self._behind_since = None
        self._newest = self._since = snapshot.sent
        # What came before it was asked for is in it, or is of a past life whatever its time says:
        # the clock may have been set back in between.
        covered, self._covered = {id(batch) for batch in self._covered}, []
        for batch in list(self._kept.values()):
            late = batch.sequence < sequence or batch.sent < snapshot.sent
            if late or id(batch) in covered:
                self._drop(batch)
        self._catch_up(now)
