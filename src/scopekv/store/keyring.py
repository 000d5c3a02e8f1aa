"""The leases a worker holds, and the keys of chains made from them (L5, T10).

A ticket goes to the key broker on a thread of its own; until its leases are here, and after they
are over, every outer tier is a miss for those scopes and keeps nothing of them.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from scopekv.core.chains import Chain, Link, Tag, tag
from scopekv.core.leases import Lease
from scopekv.core.scopes import ScopeId
from scopekv.core.sealing import ChainKeys, chain_keys
from scopekv.ports import LeaseSource
from scopekv.store.lease_requests import LeaseRequests

LEASES_MAX = 16_384
CHAINS_MAX = 16_384
FENCED_MAX = 131_072  # more than the 100,000 that one purge may name
RENEW_AT = 1 / 3  # of the lease's time left: any request's ticket renews it from then on


@dataclass(frozen=True, slots=True)
class _Held:
    lease: Lease
    ends_at: float

    def renewable(self, now: float) -> bool:
        return self.ends_at - now < self.lease.lease_seconds * RENEW_AT


@dataclass(frozen=True, slots=True)
class _Derived:
    keys: ChainKeys
    ends_at: float
    account: bytes
    retention_seconds: int


class Keyring:
    """Leases by scope, on the monotonic clock. Thread-safe; no call but `close` blocks.

    `generation` rises whenever keys were dropped, so that who keeps ciphers drops them too.
    """

    def __init__(
        self,
        source: LeaseSource,
        monotonic: Callable[[], float] = time.monotonic,
        *,
        threaded: bool = True,
    ) -> None:
        """Without `threaded` nobody asks the source but who calls `turn`."""
        self.generation = 0
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._held: OrderedDict[ScopeId, _Held] = OrderedDict()
        self._derived: OrderedDict[Chain, _Derived] = OrderedDict()
        self._fenced: OrderedDict[Tag, None] = OrderedDict()
        self._requests = LeaseRequests(source, self.accept, monotonic, threaded=threaded)

    def chain(self, chain: Chain) -> ChainKeys | None:
        """The chain's keys; None when a lease is missing or over. Cached, a dictionary look-up."""
        derived = self._derive(chain)
        return None if derived is None else derived.keys

    def account(self, chain: Chain) -> bytes | None:
        """Whose share of a tier the chain's blocks fill: the narrowest scope's."""
        derived = self._derive(chain)
        return None if derived is None else derived.account

    def retention(self, chain: Chain) -> int | None:
        """How many seconds the chain's blocks may be kept: the least over its scopes."""
        derived = self._derive(chain)
        return None if derived is None else derived.retention_seconds

    def request(self, ticket: str, links: Sequence[Link] = ()) -> bool:
        """Have leases fetched for the ticket, unless all of `links` are held for some time yet.

        Asks once per ticket at a time, not again for one that was refused, and not at all for a
        moment after the broker was out of reach. True if it is being asked now.
        """
        now = self._monotonic()
        with self._lock:
            missing = tuple(link for link in links if self._wanted(link, now))
        if links and not missing:
            return False
        return self._requests.put(ticket, missing, now)

    def turn(self) -> bool:
        """Ask the source for what waits longest, in the calling thread. False for nothing."""
        return self._requests.turn()

    def pending(self, chain: Chain) -> bool:
        """Whether a lease that the chain needs is on its way."""
        return self._requests.pending(chain)

    def accept(self, leases: Iterable[Lease], asked_at: float | None = None) -> int:
        """Take leases in; their time counts from `asked_at`. Fenced and older ones are refused."""
        start = self._monotonic() if asked_at is None else asked_at
        taken = 0
        with self._lock:
            for lease in leases:
                held = self._held.get(lease.scope)
                if held is not None and held.lease.epoch > lease.epoch:
                    continue
                if tag(Link(lease.scope, lease.epoch)) in self._fenced:
                    continue
                if held is not None and held.lease != lease:
                    self._forget_derived()
                self._held[lease.scope] = _Held(lease, start + lease.lease_seconds)
                self._held.move_to_end(lease.scope)
                taken += 1
            if len(self._held) > LEASES_MAX:
                self._forget_derived()
            while len(self._held) > LEASES_MAX:
                self._held.popitem(last=False)
        return taken

    def fence(self, tags: Iterable[Tag]) -> None:
        """Drop the leases of these (scope, epoch) pairs and take none for them from now on."""
        with self._lock:
            for one in tags:
                self._fenced[one] = None
                self._fenced.move_to_end(one)
            for scope, held in list(self._held.items()):
                if tag(Link(scope, held.lease.epoch)) in self._fenced:
                    del self._held[scope]
            while len(self._fenced) > FENCED_MAX:  # epochs long over: no broker leases them
                self._fenced.popitem(last=False)
            self._forget_derived()

    def sweep(self) -> None:
        """Drop what is over. `chain` never serves it anyway; this takes it out of memory."""
        now = self._monotonic()
        with self._lock:
            over = [scope for scope, held in self._held.items() if held.ends_at <= now]
            for scope in over:
                del self._held[scope]
            if over:
                self._forget_derived()

    def close(self) -> None:
        """Stop asking and drop every key."""
        self._requests.close()
        with self._lock:
            self._held.clear()
            self._forget_derived()

    def _derive(self, chain: Chain) -> _Derived | None:
        now = self._monotonic()
        with self._lock:
            derived = self._derived.get(chain)
            if derived is not None and now < derived.ends_at:
                return derived
            held = [self._held.get(link.scope) for link in chain]
            good = [
                one
                for one, link in zip(held, chain, strict=True)
                if one is not None and one.lease.epoch == link.epoch and now < one.ends_at
            ]
            if len(good) != len(chain) or not chain:
                if self._derived.pop(chain, None) is not None:
                    self.generation += 1
                return None
            leases = [one.lease for one in good]
            derived = self._derived[chain] = _Derived(
                chain_keys(leases),
                min(one.ends_at for one in good),
                leases[-1].account,
                min(lease.retention_seconds for lease in leases),
            )
            while len(self._derived) > CHAINS_MAX:
                self._derived.popitem(last=False)
            return derived

    def _wanted(self, link: Link, now: float) -> bool:
        held = self._held.get(link.scope)
        return held is None or held.lease.epoch != link.epoch or held.renewable(now)

    def _forget_derived(self) -> None:
        self._derived.clear()
        self.generation += 1
