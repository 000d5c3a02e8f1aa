"""One outer tier: sealed blocks in an object store, for any engine.

Nothing here blocks the calling thread or raises for trouble of the store: workers move blocks, a
janitor keeps order, and a tier in trouble is suspended until a probe finds it well (L8).

    lookup   keyring -> address -> index, or a check on a worker
    load     worker: get -> open in its buffer -> copy into the slot if still wanted
    store    is it new? -> worker: seal -> evict -> put
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from scopekv.core.blocks import Fingerprint
from scopekv.core.chains import Tag
from scopekv.core.events import OuterTier, medium_of
from scopekv.core.eviction import EvictionPolicy
from scopekv.core.fetching import TierSpeed
from scopekv.errors import Misuse
from scopekv.ports import ObjectKey, ObjectStore
from scopekv.store.blocks import Block, BlockKey, Done, Presence, Purged
from scopekv.store.counts import Counts, Meter
from scopekv.store.fence import Fence
from scopekv.store.index import Index, Pin
from scopekv.store.janitor import Janitor, circuits
from scopekv.store.jobs import Job, JobBoard
from scopekv.store.keyring import Keyring
from scopekv.store.mover import Mover, Parts
from scopekv.store.offers import Before, Offers
from scopekv.store.presence import PresenceChecks
from scopekv.store.purges import Purges
from scopekv.store.residents import Residents
from scopekv.store.sealed_objects import Address, SealedObjects
from scopekv.store.settings import TierSettings
from scopekv.store.workers import Task, Urgency, Workers

__all__ = ["Block", "BlockKey", "Done", "Presence", "Purged", "SealedTier", "TierSettings"]

_PROBE_HEX_BYTES = 20


class SealedTier:
    """The tier as an engine's scheduler thread sees it. Thread-safe; close it once."""

    def __init__(
        self,
        store: ObjectStore,
        keyring: Keyring,
        *,
        namespace: Fingerprint,
        block_bytes: int,
        settings: TierSettings,
        policy: EvictionPolicy[ObjectKey],
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        random: Callable[[int], bytes] = os.urandom,
        threaded: bool = True,
    ) -> None:
        """Without `threaded` nothing goes on but in `turns`, in the calling thread."""
        self.medium = store.medium
        self._settings = settings
        reading, writing = circuits(settings, monotonic)
        self._parts = parts = Parts(
            store=store,
            objects=SealedObjects(keyring, namespace, block_bytes, random),
            index=Index(policy, settings.capacity_bytes, clock, monotonic),
            board=JobBoard(monotonic),
            fence=Fence(),
            counts=Counts(),
            meter=Meter(monotonic),
            reading=reading,
            writing=writing,
            monotonic=monotonic,
        )
        self._keyring = keyring
        self._mover = Mover(parts)
        self._offers = Offers(parts, settings)
        size_bytes = parts.objects.object_bytes
        self._workers = Workers(settings, size_bytes, monotonic, threaded=threaded)
        self._checks = PresenceChecks(parts, self._workers, settings)
        gone = parts.index.cleared
        self._purges = Purges(store, parts.fence, monotonic, gone, threaded=threaded)
        name = random(_PROBE_HEX_BYTES).hex()
        self._janitor = Janitor(parts, self._checks, keyring, settings, clock, name)
        if threaded:
            self._janitor.start()

    @property
    def turns(self) -> tuple[Callable[[], bool], Callable[[], bool], Callable[[], None]]:
        """What threads do otherwise: one task of a worker, one purge, a look of the janitor."""
        return self._workers.turn, self._purges.turn, self._janitor.turn

    # --- read path ------------------------------------------------------------------------------

    def lookup(self, blocks: Sequence[BlockKey]) -> list[Presence]:
        """Whether each block is here. A lease that is missing or over is an absence (T10)."""
        self._watch()
        parts = self._parts
        answers = [Presence.ABSENT] * len(blocks)
        if not parts.reading.suspended:
            found = [parts.objects.address(*block) for block in blocks]
            places = [i for i, address in enumerate(found) if address is not None]
            keys = [address.key for address in found if address is not None]
            for place, answer in zip(places, self._checks.ask(keys), strict=True):
                answers[place] = answer
                address = found[place]
                if answer is Presence.PRESENT and address is not None:
                    parts.index.is_block(address.key, address.block)
        if Presence.UNKNOWN not in answers:  # else the same is asked again
            parts.counts.add("hits", answers.count(Presence.PRESENT))
            parts.counts.add("misses", answers.count(Presence.ABSENT))
        return answers

    def load(self, job_id: int, blocks: Sequence[Block]) -> None:
        """Fetch blocks into their slots. A slot is written only with verified plaintext."""
        self._watch()
        addresses = self._addresses(blocks)
        job = self._open_job(job_id, blocks, addresses)
        for index, address in enumerate(addresses):
            if address is None or not self._servable(address):
                self._parts.counts.add("load_misses")
                self._parts.board.settle(job, index, None)
                continue
            pin = self._parts.index.pin(address.key)
            failed = partial(self._failed, job, index, pin)
            run = partial(self._mover.load, job, index, address, pin)
            task = Task(Urgency.LOAD, run, failed, job, address.key.chain)
            if not self._workers.put(task):
                failed()

    def abandon(self, job_id: int) -> None:
        """Nobody waits for this load any more: from here on it writes no byte of any slot."""
        job = self._parts.board.abandon(job_id)
        if job is not None:
            size_bytes = job.count * self._parts.objects.block_bytes
            self._parts.meter.gave_up(size_bytes, self._parts.monotonic() - job.started)

    def touch(self, blocks: Sequence[BlockKey]) -> None:
        """A use of these, wherever they were read from."""
        for block in blocks:
            address = self._parts.objects.address(*block)
            if address is not None:
                self._parts.index.use(address.key, address.account)

    # --- write path -----------------------------------------------------------------------------

    def store(self, job_id: int, blocks: Sequence[Block]) -> None:
        """Keep blocks that are worth it. What is skipped counts as ok: the engine lost nothing."""
        self._watch()
        addresses = self._addresses(blocks)
        job = self._open_job(job_id, blocks, addresses)
        before: Before | None = None
        for index, (block, address) in enumerate(zip(blocks, addresses, strict=True)):
            if address is None:
                before = None
                self._skip(job, index)
                continue
            entry = self._offers.entry(block, address, before)
            before = (block, address.key, entry.depth)
            self._parts.index.is_block(address.key, address.block)
            if not self._offers.is_new(address):
                self._skip(job, index)
                continue
            run = partial(self._mover.store, job, index, address, entry)
            failed = partial(self._failed, job, index)
            if not self._workers.put(Task(Urgency.STORE, run, failed, job, address.key.chain)):
                self._skip(job, index)

    def _skip(self, job: Job, index: int) -> None:
        self._parts.counts.add("skipped")
        self._parts.board.settle(job, index, 0)

    # --- jobs -----------------------------------------------------------------------------------

    def finished(self) -> list[Done]:
        """The jobs that ended since the last call, each once."""
        self._watch()
        return self._parts.board.finished()

    def progress(self, job_id: int) -> int | None:
        """How many blocks of a job under way succeeded so far; None where it is over."""
        return self._parts.board.progress(job_id)

    def _addresses(self, blocks: Sequence[Block]) -> list[Address | None]:
        objects = self._parts.objects
        for block in blocks:
            if block.view.nbytes != objects.block_bytes or block.view.readonly:
                raise Misuse(
                    f"a block's slot is {objects.block_bytes} writable bytes, not "
                    f"{block.view.nbytes}"
                )
        return [objects.address(block.chain, block.block_hash, block.group_idx) for block in blocks]

    def _open_job(
        self, job_id: int, blocks: Sequence[Block], addresses: Sequence[Address | None]
    ) -> Job:
        folders = [None if address is None else address.key.chain for address in addresses]
        return self._parts.board.open(job_id, blocks, folders)

    def _failed(self, job: Job, index: int, pin: Pin | None = None) -> None:
        self._parts.index.unpin(pin)
        self._parts.counts.add("dropped")
        self._parts.board.settle(job, index, None)

    def _servable(self, address: Address) -> bool:
        parts = self._parts
        if parts.reading.suspended or parts.fence.holds(address.key.chain):
            return False
        if parts.index.get(address.key) is None:
            return False
        parts.index.use(address.key, address.account)
        return True

    def _watch(self) -> None:
        self._parts.give_up_hung(self._workers)

    # --- the rest -------------------------------------------------------------------------------

    def purge(self, tags: frozenset[Tag], pending_only: bool = False) -> Purged:
        """Make the store forget these (scope, epoch) pairs for good. Never blocks.

        At once: nothing of them is read or written any more. Deletion, of other writers' objects
        too, is begun by the first call; ask again until `busy` is 0. With `pending_only` nothing
        is deleted; `busy` counts the writes under way.
        """
        parts = self._parts
        self._keyring.fence(tags)
        parts.fence.raise_for(tags)
        dropped = self._workers.drop(tags)
        for task in dropped:
            task.failed()
        parts.counts.add("purged", parts.index.forget_tags(tags))
        parts.board.cancel(tags)
        if pending_only:
            return Purged(0, parts.fence.puts(tags))
        return self._purges.ask(tags)

    def expire(self) -> int:
        """Delete what is past its retention, whoever left it. Blocks as long as the store does."""
        return self._janitor.expire()

    def speed(self) -> TierSpeed:
        """What fetching costs now, as measured."""
        self._watch()
        return self._parts.meter.speed(self._parts.reading.suspended)

    def place(self) -> OuterTier:
        """What a location index is told of this tier."""
        medium = medium_of(self.medium)
        if medium is None:
            raise Misuse(f"a {self.medium} store is no place of a location index")
        return OuterTier(medium, self._settings.store_id, self.speed())

    @property
    def residents(self) -> Residents:
        """Which blocks are here, and what changed of it."""
        return self._parts.index.residents

    def counters(self) -> Mapping[str, int]:
        """Counts since the start, and what is there now."""
        parts = self._parts
        now = {
            "used_bytes": parts.index.used_bytes,
            "objects": len(parts.index),
            "queued": self._workers.queued(),
            "suspended": int(parts.reading.suspended),
            "writes_suspended": int(parts.writing.suspended),
        }
        return {**parts.counts.all(), **now}

    def used_by_account(self) -> Mapping[bytes, int]:
        """Bytes by account."""
        return self._parts.index.bytes_by_account()

    @property
    def ready(self) -> bool:
        """Whether what is in the store was listed once since the start."""
        return self._checks.listed_at is not None

    def close(self) -> None:
        """Finish what is queued, bounded in time, write the manifest, close the store."""
        limit = self._settings.close_seconds
        for task in self._workers.close(limit):
            task.failed()
        for job in self._parts.board.running():
            self._parts.board.close(job)
        self._janitor.close(limit)
        self._purges.close(limit)
        self._janitor.save()
        self._parts.objects.forget()
        self._parts.store.close()
