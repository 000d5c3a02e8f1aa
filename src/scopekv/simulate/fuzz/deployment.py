"""What all parts of one deployment have in common: keys, namespace, registry, broker, oracle."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Mapping, Sequence
from random import Random

from scopekv.core.blocks import Fingerprint
from scopekv.core.leases import Lease
from scopekv.core.tickets import Check, KeyId, audience_id, key_id
from scopekv.errors import Unavailable
from scopekv.ports import LeaseSource
from scopekv.simulate.fuzz.clock import Clock, Machine
from scopekv.simulate.fuzz.oracle import Oracle
from scopekv.simulate.fuzz.registry import WorldRegistry, WorldRootKey
from scopekv.store.broker import Authority, KeyBroker
from scopekv.store.scope_keys import Retention

LEASE_SECONDS = 60
_KEY = b"a key of the simulated deployment"


class Deployed:
    """Signs with HMAC-SHA-512, whose tags are as long as Ed25519's: cheap, and as hard to forge."""

    def __init__(self, clock: Clock, machine: Machine, dice: Callable[[], Random]) -> None:
        self.fingerprint = Fingerprint(hashlib.sha256(b"a simulated namespace").digest())
        self.audience = audience_id("simulated")
        self.key_id: KeyId = key_id(_KEY)
        self.checks: Mapping[KeyId, Check] = {self.key_id: _genuine}
        self.secret = hashlib.sha256(_KEY).digest()
        self.registry, self.root_key, self.oracle = WorldRegistry(), WorldRootKey(), Oracle()
        self.retention = Retention(session=3600)
        self.machine = machine
        self.broker = KeyBroker(
            self.registry.port,
            self.root_key,
            Authority(self.checks, self.audience),
            self.retention,
            lease_seconds=LEASE_SECONDS,
            clock=machine.wall,
            monotonic=clock.mono,
        )
        self.broker_fails = 0.0
        self.pause: Callable[[float], None] = lambda _: None
        self._dice = dice

    def lease_source(self) -> LeaseSource:
        return _Way(self)

    @staticmethod
    def sign(message: bytes) -> bytes:
        return hmac.digest(_KEY, message, "sha512")

    def ask_broker(self, ticket: str) -> Sequence[Lease]:
        """A call over the network: late, or lost on the way there or back."""
        self.pause(0.002)
        fails = self._dice().random() < self.broker_fails
        if fails and self._dice().random() < 0.5:
            raise Unavailable("the simulated broker is out of reach")
        leases = self.broker.lease(ticket)
        self.pause(0.002)  # an epoch may end while the answer is on its way
        if fails:
            raise Unavailable("the simulated broker's answer was lost")
        return leases


class _Way:
    """`ports.LeaseSource` over the simulated network."""

    def __init__(self, deployed: Deployed) -> None:
        self._deployed = deployed

    def lease(self, ticket: str) -> Sequence[Lease]:
        return self._deployed.ask_broker(ticket)


def _genuine(message: bytes, signature: bytes) -> bool:
    return hmac.compare_digest(hmac.digest(_KEY, message, "sha512"), signature)
