"""The registry: `ports.Registry` over one database."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from scopekv.adapters.registry import schema
from scopekv.adapters.registry.audit import SqlAuditLog
from scopekv.adapters.registry.cached_contents import SqlCachedContents
from scopekv.adapters.registry.counters import Counters
from scopekv.adapters.registry.database import Database, connect
from scopekv.adapters.registry.documents import SqlDocuments, SqlEpochs, SqlRules
from scopekv.adapters.registry.identities import SqlIdentities
from scopekv.adapters.registry.keys import SqlKeys
from scopekv.adapters.registry.principals import SqlAccounts, SqlGroups, SqlOrgs
from scopekv.adapters.registry.receipts import SqlReceipts
from scopekv.adapters.registry.scope_keys import SqlScopeKeys
from scopekv.adapters.registry.session import Session
from scopekv.core.policy import RoleRules
from scopekv.core.scopes import Scope
from scopekv.ports import (
    Accounts,
    AuditLog,
    CachedContents,
    Documents,
    Epochs,
    Groups,
    Identities,
    KeyRecord,
    Keys,
    Orgs,
    PublishedDocument,
    Receipts,
    RegistryTransaction,
    Rules,
    ScopeKeys,
    Versions,
)


class SqlTransaction:
    """One transaction's view of every table."""

    def __init__(self, session: Session) -> None:
        self.orgs: Orgs = SqlOrgs(session)
        self.accounts: Accounts = SqlAccounts(session)
        self.groups: Groups = SqlGroups(session)
        self.keys: Keys = SqlKeys(session)
        self.identities: Identities = SqlIdentities(session)
        self.documents: Documents = SqlDocuments(session)
        self.cached_contents: CachedContents = SqlCachedContents(session)
        self.rules: Rules = SqlRules(session)
        self.epochs: Epochs = SqlEpochs(session)
        self.scope_keys: ScopeKeys = SqlScopeKeys(session)
        self.receipts: Receipts = SqlReceipts(session)
        self.audit: AuditLog = SqlAuditLog(session)


class SqlRegistry:
    """`ports.Registry`. Thread-safe; blocking. Make it with `open_registry`."""

    def __init__(self, database: Database, clock: Callable[[], float]) -> None:
        self._database = database
        self._counters = Counters(database)
        self._clock = clock

    @property
    def database(self) -> Database:
        """For tests and the fault suite."""
        return self._database

    def versions(self) -> Versions:
        """Return the counters as of the last committed change."""
        return self._counters.read()

    def key(self, digest: bytes) -> KeyRecord | None:
        """Return the record of the API key whose SHA-256 is `digest`, if there is one."""
        with self._reading() as session:
            return SqlKeys(session).record(digest)

    def documents(self) -> Iterable[PublishedDocument]:
        """Return the current revision of every document that is not withdrawn."""
        with self._reading() as session:
            return SqlDocuments(session).current()

    def rules(self, org: str) -> RoleRules:
        """Return the role rules of the organisation named `org`, or the defaults."""
        with self._reading() as session:
            found = SqlOrgs(session).get(org)
            return SqlRules(session).get(found.uid) if found else RoleRules()

    def epoch(self, scope: Scope) -> int:
        """Return the epoch of `scope.epoch_owner`; 0 where none was ever set."""
        with self._reading() as session:
            return SqlEpochs(session).get(scope)

    def audit(self, *, actor: str, action: str, resource: str, outcome: str, reason: str) -> None:
        """Append one entry, in a transaction of its own."""
        with self.write() as transaction:
            transaction.audit.append(
                actor=actor, action=action, resource=resource, outcome=outcome, reason=reason
            )

    def bump_epoch(self, scope: Scope) -> int:
        """Raise the epoch of `scope.epoch_owner` and return it."""
        with self.write() as transaction:
            return transaction.epochs.bump(scope)

    @contextmanager
    def read(self) -> Iterator[RegistryTransaction]:
        """A snapshot of one commit."""
        with self._reading() as session:
            yield SqlTransaction(session)

    @contextmanager
    def write(self) -> Iterator[RegistryTransaction]:
        """The one write transaction."""
        with self._database.write() as connection:
            yield SqlTransaction(Session(connection, now=self._clock(), writable=True))

    @contextmanager
    def _reading(self) -> Iterator[Session]:
        with self._database.read() as connection:
            yield Session(connection, now=self._clock(), writable=False)

    def close(self) -> None:
        """Give up every connection."""
        self._counters.close()
        self._database.close()


def open_registry(url: str, *, clock: Callable[[], float] = time.time) -> SqlRegistry:
    """Open the registry at `url`, making or migrating its schema first.

    `sqlite:////path/registry.db` (made with mode 0600) or `postgresql://...`. Several processes
    may open it at once. Raises `ConfigError` for a URL, file or schema this version cannot use,
    `Unavailable` for a server out of reach. Cost: 2 ms; the first time 50 ms.
    """
    database = connect(url)
    try:
        schema.upgrade(database)
    except BaseException:
        database.close()
        raise
    return SqlRegistry(database, clock)
