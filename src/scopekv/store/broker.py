"""The key broker: a ticket in, leases out (L5, T10).

It holds no right of its own. Keys lie wrapped in the registry, the root key opens them, and only a
genuine ticket of this deployment's engines names which; an epoch that is over has none.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from scopekv.core.chains import Link
from scopekv.core.leases import LEASE_SECONDS_MAX, Lease
from scopekv.core.scopes import ScopeKind
from scopekv.core.tickets import AudienceId, Check, KeyId, verify_for_broker
from scopekv.errors import ConfigError, Corrupt, Unavailable
from scopekv.ports import KeyWrapper, Registry, ScopeKeyRecord
from scopekv.store import scope_keys
from scopekv.store.scope_keys import Retention

KEPT_SECONDS = 60.0
KEPT_MAX = 10_000
LEASE_SECONDS = 300
TRIES_MAX = 8
log = logging.getLogger("scopekv.broker")


@dataclass(frozen=True, slots=True)
class Authority:
    """Whose tickets count: their public keys, and the group of engines they are for."""

    ticket_keys: Mapping[KeyId, Check]
    audience: AudienceId


@dataclass(frozen=True, slots=True)
class _Kept:
    lease: Lease | None = field(repr=False)  # None: its key does not open
    until: float


class KeyBroker:
    """Leases keys against tickets. Thread-safe; blocking: the registry, the root key.

    An opened key is kept for a minute at most, and not beyond the next change of any epoch.
    """

    def __init__(
        self,
        registry: Registry,
        wrapper: KeyWrapper,
        authority: Authority,
        retention: Retention,
        *,
        lease_seconds: int = LEASE_SECONDS,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        if not 1 <= lease_seconds <= LEASE_SECONDS_MAX:
            raise ConfigError(
                f"lease_seconds is {lease_seconds}; it takes 1 to {LEASE_SECONDS_MAX}"
            )
        self._registry, self._wrapper, self._authority = registry, wrapper, authority
        self._retention, self._lease_seconds = retention, lease_seconds
        self._clock, self._monotonic = clock, monotonic
        self._lock = threading.Lock()
        self._kept: OrderedDict[Link, _Kept] = OrderedDict()
        self._epochs = -1  # the registry's counter that everything kept was read under

    def lease(self, ticket_text: object) -> list[Lease]:
        """Return a lease for each scope of the ticket whose epoch stands and whose key opens.

        Raises `TicketInvalid` or `TicketExpired`; `Unavailable` where registry or root key are.
        Cost: one signature check and one look at the counters; for a new scope one read of the
        registry and one unwrap.
        """
        ticket = verify_for_broker(
            ticket_text,
            keys=self._authority.ticket_keys,
            now_ms=int(self._clock() * 1000),
            audience=self._authority.audience,
        )
        links = list(dict.fromkeys(Link(grant.scope, grant.epoch) for grant in ticket.grants))
        for _ in range(TRIES_MAX):
            epochs = self._registry.versions().epochs
            found = self._known(links, epochs)
            missing = [link for link in links if link not in found]
            if missing:
                opened = {link: self._opened(record) for link, record in self._records(missing)}
                if self._registry.versions().epochs != epochs:
                    continue  # one may have ended while its key was opened
                self._keep(opened, epochs)
                found |= opened
            return [lease for link in links if (lease := found.get(link)) is not None]
        raise Unavailable("epochs do not come to rest; ask again")

    def expire_keys(self, now: float) -> list[ScopeKeyRecord]:
        """Destroy keys out of retention and drop what was kept too long. Call it every minute."""
        self.sweep()
        gone: list[ScopeKeyRecord] = []
        while batch := scope_keys.expire(self._registry, self._retention, now):
            gone += batch
        return gone

    def sweep(self) -> None:
        """Drop opened keys whose minute is over."""
        now = self._monotonic()
        with self._lock:
            for link in [link for link, kept in self._kept.items() if kept.until <= now]:
                del self._kept[link]

    def _known(self, links: Sequence[Link], epochs: int) -> dict[Link, Lease | None]:
        now = self._monotonic()
        with self._lock:
            if epochs != self._epochs:
                self._kept.clear()
                self._epochs = epochs
            kept = {link: self._kept[link] for link in links if link in self._kept}
        return {link: one.lease for link, one in kept.items() if now < one.until}

    def _keep(self, leases: Mapping[Link, Lease | None], epochs: int) -> None:
        until = self._monotonic() + KEPT_SECONDS
        with self._lock:
            if epochs != self._epochs:
                return  # an epoch ended meanwhile
            for link, lease in leases.items():
                self._kept[link] = _Kept(lease, until)
                self._kept.move_to_end(link)
            while len(self._kept) > KEPT_MAX:
                self._kept.popitem(last=False)

    def _records(self, links: Sequence[Link]) -> list[tuple[Link, ScopeKeyRecord]]:
        """The records of those whose epoch stands and that have a key, in one snapshot."""
        with self._registry.read() as view:
            records = [(link, view.scope_keys.get(link.scope, link.epoch)) for link in links]
            return [
                (link, record)
                for link, record in records
                if record is not None
                and record.wrapped
                and view.epochs.get(record.owner) == link.epoch
            ]

    def _opened(self, record: ScopeKeyRecord) -> Lease | None:
        try:
            key = self._wrapper.unwrap(record.wrapped, scope_keys.context_of(record))
        except Corrupt as error:
            log.error("no lease for one scope of kind %s: %s", record.kind, error)
            return None
        return Lease(
            scope=record.scope,
            epoch=record.epoch,
            key=key,
            lease_seconds=self._lease_seconds,
            retention_seconds=self._retention.seconds(ScopeKind(record.kind)),
            account=record.account,
        )
