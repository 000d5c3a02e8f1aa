"""A real sealed tier in the simulated world, and an account of what it does, kept from outside."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from random import Random

from scopekv.core.eviction import Entry, ScopedPolicy, Shares
from scopekv.ports import ObjectKey
from scopekv.simulate.fuzz.clock import Clock, Machine
from scopekv.simulate.fuzz.deployment import Deployed
from scopekv.simulate.fuzz.places import Killed, Place, PlaceClient, Process
from scopekv.store.blocks import Block
from scopekv.store.keyring import Keyring
from scopekv.store.settings import TierSettings
from scopekv.store.tier import SealedTier

BLOCK_BYTES = 64
OBJECT_BYTES = BLOCK_BYTES + 48


@dataclass(frozen=True, slots=True)
class TierPlan:
    """A tier of one engine. `shared`: others write to its place."""

    label: str
    place: Place
    capacity_bytes: int
    shared: bool
    dice: Callable[[], Random]


class Mirror:
    """`ScopedPolicy` with a second book: what it was told to hold, and the pins on it."""

    def __init__(self, capacity_bytes: int) -> None:
        self._policy: ScopedPolicy[ObjectKey] = ScopedPolicy(Shares(capacity_bytes))
        self.sizes: dict[ObjectKey, int] = {}
        self.pins: dict[ObjectKey, int] = {}

    def insert(self, key: ObjectKey, entry: Entry[ObjectKey]) -> None:
        self._policy.insert(key, entry)
        self.sizes[key] = entry.size_bytes

    def touch(self, key: ObjectKey) -> None:
        self._policy.touch(key)

    def remove(self, key: ObjectKey) -> None:
        self._policy.remove(key)
        self.sizes.pop(key, None)
        self.pins.pop(key, None)

    def pin(self, key: ObjectKey) -> None:
        self._policy.pin(key)
        self.pins[key] = self.pins.get(key, 0) + 1

    def unpin(self, key: ObjectKey) -> None:
        self._policy.unpin(key)
        left = self.pins.pop(key, 0) - 1
        if left > 0:
            self.pins[key] = left

    def victims(
        self, size_bytes: int, account: bytes, protected: Collection[ObjectKey] = ()
    ) -> list[ObjectKey] | None:
        return self._policy.victims(size_bytes, account, protected)

    def used_bytes(self, account: bytes | None = None) -> int:
        return self._policy.used_bytes(account)

    def __len__(self) -> int:
        return len(self._policy)

    def __contains__(self, key: object) -> bool:
        return key in self._policy


class OuterTier:
    """A tier of one life of an engine, with its own count of what was asked and reported."""

    def __init__(
        self,
        plan: TierPlan,
        keyring: Keyring,
        deployed: Deployed,
        clock: Clock,
        machine: Machine,
        process: Process,
    ) -> None:
        self.plan = plan
        self.mirror = Mirror(plan.capacity_bytes)
        self.loads_open: dict[int, int] = {}  # job -> blocks
        self.stores_open: dict[int, int] = {}
        self.loaded = self.loads_asked = self.reported_twice = 0
        self.tier = SealedTier(
            PlaceClient(plan.place, process),
            keyring,
            namespace=deployed.fingerprint,
            block_bytes=BLOCK_BYTES,
            settings=TierSettings(capacity_bytes=plan.capacity_bytes, shared=plan.shared),
            policy=self.mirror,
            clock=machine.wall,
            monotonic=clock.mono,
            random=lambda size: plan.dice().randbytes(size),
            threaded=False,
        )

    def turn(self, kind: int) -> None:
        """One thing that its threads do: a task of a worker, a purge, the janitor's look."""
        self.tier.turns[kind - 1]()

    def work_off(self) -> None:
        """All that is left to do for the threads."""
        work, purge, tidy = self.tier.turns
        tidy()
        while work() or purge():
            pass

    def expire(self) -> None:
        """As the engine's `expire` call: delete what is past its time."""
        with suppress(Killed):
            self.tier.expire()

    def load(self, job_id: int, blocks: Sequence[Block]) -> None:
        self.loads_open[job_id] = len(blocks)
        self.loads_asked += len(blocks)
        self.tier.load(job_id, blocks)

    def store(self, job_id: int, blocks: Sequence[Block]) -> None:
        self.stores_open[job_id] = len(blocks)
        self.tier.store(job_id, blocks)

    def abandon(self, job_id: int) -> None:
        self.tier.abandon(job_id)

    def reports(self) -> list[tuple[int, bool]]:
        """Jobs that ended, with whether every block of them is there."""
        ended = []
        for done in self.tier.finished():
            blocks = self.loads_open.pop(done.job_id, None)
            if blocks is not None:
                self.loaded += len(done.ok)
                ended.append((done.job_id, len(done.ok) == blocks))
            elif self.stores_open.pop(done.job_id, None) is None:
                self.reported_twice += 1
        return ended
