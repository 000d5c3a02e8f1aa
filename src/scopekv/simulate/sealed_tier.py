"""A sealed tier over a simulated or real store, with a broker that leases what it is told."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from scopekv.core.blocks import Fingerprint
from scopekv.core.chains import Chain, Link
from scopekv.core.eviction import ScopedPolicy, Shares
from scopekv.core.leases import Lease
from scopekv.core.scopes import ScopeId
from scopekv.errors import Misuse, Refused, Unavailable
from scopekv.ports import ObjectStore
from scopekv.store.keyring import Keyring
from scopekv.store.settings import TierSettings
from scopekv.store.tier import Block, Done, Presence, SealedTier

BLOCK_BYTES = 4096
WAIT_SECONDS_MAX = 60.0
NAMESPACE = Fingerprint(hashlib.sha256(b"simulated namespace").digest())


class SimulatedBroker:
    """A lease source. A ticket is the text of its links: `name:epoch name:epoch ...`."""

    def __init__(self, lease_seconds: int = 600, retention_seconds: int = 3600) -> None:
        self.lease_seconds = lease_seconds
        self.retention_seconds = retention_seconds
        self.asked: list[str] = []
        self.withdrawn: set[Link] = set()
        self.out_of_reach = False
        self.refusing = False

    def lease(self, ticket: str) -> Sequence[Lease]:
        self.asked.append(ticket)
        if self.out_of_reach:
            raise Unavailable("the simulated broker is out of reach")
        if self.refusing:
            raise Refused("the simulated broker refuses the ticket")
        links = [link(*part.split(":")) for part in ticket.split()]
        return [self.lease_of(one) for one in links if one not in self.withdrawn]

    def lease_of(self, one: Link, account: bytes | None = None) -> Lease:
        """The key is what the scope and epoch hash to: the same for every worker."""
        key = hashlib.sha256(b"key" + one.scope + one.epoch.to_bytes(8, "big")).digest()
        owner = account or hashlib.sha256(one.scope).digest()[:16]
        return Lease(one.scope, one.epoch, key, self.lease_seconds, self.retention_seconds, owner)


def link(name: str, epoch: int | str = 1) -> Link:
    return Link(ScopeId(hashlib.sha256(name.encode()).digest()[:16]), int(epoch))


class TierStage:
    """A tier, its keyring and its blocks, for tests and benchmarks. Close it."""

    def __init__(
        self,
        store: ObjectStore,
        *,
        settings: TierSettings | None = None,
        block_bytes: int = BLOCK_BYTES,
        namespace: Fingerprint = NAMESPACE,
        broker: SimulatedBroker | None = None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        random: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self.store_ = store
        self.block_bytes = block_bytes
        self.broker = broker or SimulatedBroker()
        self.settings = settings or TierSettings(capacity_bytes=1 << 30)
        self.keyring = Keyring(self.broker, monotonic)
        self.tier = SealedTier(
            store,
            self.keyring,
            namespace=namespace,
            block_bytes=block_bytes,
            settings=self.settings,
            policy=ScopedPolicy(Shares(self.settings.capacity_bytes)),
            clock=clock,
            monotonic=monotonic,
            random=random,
        )
        self._job_id = 0
        self._done: dict[int, Done] = {}

    def grant(self, *links: Link, account: bytes | None = None) -> Chain:
        """Put leases into the keyring; return the chain."""
        self.keyring.accept(self.broker.lease_of(one, account) for one in links)
        return tuple(links)

    def block(self, chain: Chain, name: str, content: bytes | None = None) -> Block:
        """A block with a slot of its own; its content follows from chain and name."""
        seed = repr((chain, name)).encode()
        data = content or hashlib.shake_128(seed).digest(self.block_bytes)
        return Block(chain, hashlib.sha256(seed).digest(), 0, memoryview(bytearray(data)))

    def empty(self, block: Block) -> Block:
        """The same block with a slot of 0xEE bytes, to be loaded into."""
        slot = memoryview(bytearray(b"\xee" * self.block_bytes))
        return Block(block.chain, block.block_hash, block.group_idx, slot)

    def job(self) -> int:
        self._job_id += 1
        return self._job_id

    def ready(self) -> TierStage:
        self.until(lambda: self.tier.ready)
        return self

    def store(self, *blocks: Block) -> Done:
        job_id = self.job()
        self.tier.store(job_id, blocks)
        return self.wait(job_id)

    def load(self, *blocks: Block) -> Done:
        job_id = self.job()
        self.tier.load(job_id, blocks)
        return self.wait(job_id)

    def wait(self, job_id: int) -> Done:
        def over() -> bool:
            for done in self.tier.finished():
                if done.job_id in self._done:
                    raise Misuse(f"job {done.job_id} was reported twice")
                self._done[done.job_id] = done
            return job_id in self._done

        self.until(over)
        return self._done[job_id]

    def lookup(self, *blocks: Block) -> list[Presence]:
        """Ask until everything is known."""
        asked = [(block.chain, block.block_hash, block.group_idx) for block in blocks]
        answers: list[Presence] = []

        def known() -> bool:
            answers[:] = self.tier.lookup(asked)
            return Presence.UNKNOWN not in answers

        self.until(known)
        return answers

    def until(self, true: Callable[[], bool], seconds: float = WAIT_SECONDS_MAX) -> None:
        """Wait by looking. Raises `Misuse` when it does not come true."""
        limit = time.monotonic() + seconds
        while not true():
            if time.monotonic() > limit:
                raise Misuse(f"it did not come true within {seconds} seconds")
            time.sleep(0.001)

    def close(self) -> None:
        self.tier.close()
        self.keyring.close()


def small_settings(path: Path | None = None, **changes: object) -> TierSettings:
    """Settings with short times, for tests that wait by looking.

    But for the one of a hang: on a busy machine a thread that is not let run looks like one.
    """
    values: dict[str, object] = {
        "capacity_bytes": 1 << 30,
        "manifest": path,
        "stall_seconds": 60.0,
        "presence_seconds": 0.05,
        "absence_seconds": 0.05,
        "recovery_seconds": 0.01,
        "recovery_seconds_max": 0.05,
        "janitor_seconds": 0.05,
        "inventory_seconds": 0.1,
        "close_seconds": 1.0,
        **changes,
    }
    return TierSettings(**values)  # type: ignore[arg-type]
