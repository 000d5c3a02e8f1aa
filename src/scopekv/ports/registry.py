"""The registry's port: what gateways read, and what administration changes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from scopekv.core.policy import RoleRules
from scopekv.core.scopes import Principal, Scope
from scopekv.core.values import light_value
from scopekv.ports.audit import AuditLog
from scopekv.ports.documents import CachedContents, Documents, PublishedDocument
from scopekv.ports.identity import Identities
from scopekv.ports.keys import ScopeKeys
from scopekv.ports.receipts import Receipts


@light_value()
class Versions:
    """Counters that rise with every committed change of what they count; cheap to read."""

    principals: int
    documents: int
    rules: int
    epochs: int


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """What an API key stands for. `expires_at`: Unix seconds, None: never."""

    principal: Principal
    expires_at: float | None
    blocked: bool


class RegistryReader(Protocol):
    """The read path of a gateway. Blocking calls; every one may raise `Unavailable`.

    Before serving a request the gateway compares `versions()` with those it cached under, so a
    change is seen by the next request (L6). An unreachable registry refuses.
    """

    def versions(self) -> Versions:
        """Return the counters as of the last committed change. At most a millisecond."""
        ...

    def key(self, digest: bytes) -> KeyRecord | None:
        """Return the record of the API key whose SHA-256 is `digest`, if there is one.

        A blocked user, service account or organisation shows as `blocked`.
        """
        ...

    def documents(self) -> Iterable[PublishedDocument]:
        """Return the current revision of every document that is not withdrawn."""
        ...

    def rules(self, org: str) -> RoleRules:
        """Return the organisation's role rules, or the defaults."""
        ...

    def epoch(self, scope: Scope) -> int:
        """Return the epoch of `scope.epoch_owner`; 0 where none was ever set."""
        ...

    def audit(self, *, actor: str, action: str, resource: str, outcome: str, reason: str) -> None:
        """Append one entry to the audit log. Never holds prompt text, keys or tickets."""
        ...


@dataclass(frozen=True, slots=True)
class Org:
    """An organisation. Times here and below are Unix seconds."""

    uid: str
    name: str
    blocked: bool
    created_at: float


@dataclass(frozen=True, slots=True)
class Account:
    """A user or a service account (`principal.service`), with its roles and groups."""

    principal: Principal
    blocked: bool
    created_at: float


@dataclass(frozen=True, slots=True)
class Group:
    """A group of one organisation and the names of its members, sorted."""

    uid: str
    org_uid: str
    name: str
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ApiKey:
    """What may be shown of an API key: everything but the secret and its digest."""

    uid: str
    org_uid: str
    account_uid: str
    owner: str
    label: str
    created_at: float
    expires_at: float | None
    blocked: bool


class Orgs(Protocol):
    """Organisations. `list` is by name, after the name `after`, at most `limit`.

    Deleting one takes its accounts, groups and keys along. `Conflict` while a document names it.
    """

    def get(self, name: str) -> Org | None: ...
    def list(self, after: str, limit: int) -> Sequence[Org]: ...
    def create(self, name: str) -> Org: ...
    def set_blocked(self, uid: str, blocked: bool) -> None: ...
    def delete(self, uid: str) -> None: ...


class Accounts(Protocol):
    """Users and service accounts, which share one set of names per organisation.

    Deleting one takes its keys along. `Conflict` while it is a document's audience.
    """

    def get(self, org_uid: str, name: str) -> Account | None: ...
    def by_uid(self, uid: str) -> Account | None: ...
    def list(self, org_uid: str, service: bool, after: str, limit: int) -> Sequence[Account]: ...
    def create(self, org_uid: str, name: str, service: bool) -> Account: ...
    def set_blocked(self, uid: str, blocked: bool) -> None: ...
    def grant(self, uid: str, role: str) -> None: ...
    def revoke(self, uid: str, role: str) -> None: ...
    def delete(self, uid: str) -> None: ...


class Groups(Protocol):
    """Groups of accounts inside one organisation. `delete` raises `Conflict` as above."""

    def get(self, org_uid: str, name: str) -> Group | None: ...
    def list(self, org_uid: str, after: str, limit: int) -> Sequence[Group]: ...
    def create(self, org_uid: str, name: str) -> Group: ...
    def add(self, uid: str, account_uid: str) -> None: ...
    def remove(self, uid: str, account_uid: str) -> None: ...
    def delete(self, uid: str) -> None: ...


class Keys(Protocol):
    """API keys by SHA-256; the secret never reaches the registry.

    `list` is by uid: of one account, or of the organisation where `account_uid` is empty.
    `expire` never lengthens a key's life.
    """

    def get(self, uid: str) -> ApiKey | None: ...
    def list(self, org_uid: str, account_uid: str, after: str, limit: int) -> Sequence[ApiKey]: ...
    def create(
        self, account_uid: str, digest: bytes, label: str, expires_at: float | None
    ) -> ApiKey: ...
    def expire(self, uid: str, at: float) -> None: ...
    def set_blocked(self, uid: str, blocked: bool) -> None: ...
    def delete(self, uid: str) -> None: ...


class Rules(Protocol):
    """Role rules per organisation."""

    def get(self, org_uid: str) -> RoleRules: ...
    def set(self, org_uid: str, rules: RoleRules) -> None: ...


class Epochs(Protocol):
    """Epochs per owning scope."""

    def get(self, scope: Scope) -> int: ...
    def bump(self, scope: Scope) -> int: ...


class RegistryTransaction(Protocol):
    """A consistent view; in a write transaction, changes that commit together or not at all."""

    orgs: Orgs
    accounts: Accounts
    groups: Groups
    keys: Keys
    identities: Identities
    documents: Documents
    cached_contents: CachedContents
    rules: Rules
    epochs: Epochs
    scope_keys: ScopeKeys
    receipts: Receipts
    audit: AuditLog


class Registry(RegistryReader, Protocol):
    """The whole registry. One write transaction runs at a time, over all processes.

    `read` is a snapshot; changing anything in it raises `Misuse`. `write` commits on leaving, rolls
    back on an error, and does not nest; `Versions` rise in the same commit.
    `bump_epoch` raises the epoch of `scope.epoch_owner`, in a transaction of its own.
    """

    def read(self) -> AbstractContextManager[RegistryTransaction]: ...
    def write(self) -> AbstractContextManager[RegistryTransaction]: ...
    def bump_epoch(self, scope: Scope) -> int: ...

    def close(self) -> None: ...
