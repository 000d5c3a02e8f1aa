"""The ports of sealing keys: who wraps them, who keeps them, who leases them to a worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from scopekv.core.leases import Lease
from scopekv.core.scopes import Scope, ScopeId

LEASES_PATH = "/v1/scopekv/leases"  # where a gateway leases keys


class KeyWrapper(Protocol):
    """A root key that wraps scope keys and never leaves its place (L5).

    Adapters: a local file, HashiCorp Vault's transit engine. `Unavailable` when out of reach,
    `Corrupt` where a wrapped key does not open. `context` is bound, not secret.
    """

    @property
    def version(self) -> str:
        """The name of the root key version that `wrap` uses now; rewrapping moves keys to it."""
        ...

    def wrap(self, key: bytes, context: bytes) -> bytes:
        """Wrap with the version that is current now.

        Read `version` before, never after: a key labelled older than it is is rewrapped once too
        often, one labelled newer than it is would be lost when the old version goes.
        """
        ...

    def unwrap(self, wrapped: bytes, context: bytes) -> bytes: ...

    def rotate(self) -> str:
        """Make a new version, and return its name. What older ones wrapped still unwraps."""
        ...

    def retire(self) -> int:
        """Give up all versions but the current; what they wrapped never opens again.

        Returns how many there were.
        """
        ...

    def close(self) -> None:
        """Give back connections."""
        ...


@dataclass(frozen=True, slots=True)
class ScopeKeyRecord:
    """A scope's wrapped key of one epoch.

    `owner` is the scope whose epoch counts, `account` the opaque id (16 bytes) of the organisation
    whose share of a tier its blocks fill; a deployment's own documents have 16 zero bytes.
    `root_version` names the root key that wrapped it. Both it and `wrapped` are empty while the
    root key is out of reach: no lease is made of that, but a revocation knows the scope and epoch.
    `noted_at`: Unix seconds of the last use.
    """

    scope: ScopeId
    epoch: int
    kind: str
    owner: Scope
    account: bytes
    wrapped: bytes = field(repr=False)
    root_version: str
    noted_at: float


class ScopeKeys(Protocol):
    """The wrapped keys in the registry. Destroying one makes all that it sealed unreadable."""

    def note(self, record: ScopeKeyRecord) -> bool:
        """Keep the record if there is none, else refresh `noted_at`.

        The key that is kept is the first that is not empty. False, and nothing kept, where the
        owner's epoch is not `record.epoch` any more.
        """
        ...

    def get(self, scope: ScopeId, epoch: int) -> ScopeKeyRecord | None: ...

    def of_owner(self, owner: Scope, below_epoch: int) -> Sequence[ScopeKeyRecord]:
        """The records of all scopes under `owner` with an epoch below this."""
        ...

    def destroy(self, owner: Scope, below_epoch: int) -> int:
        """Delete those for good; return how many."""
        ...

    def destroy_idle(self, kind: str, noted_before: float) -> Sequence[ScopeKeyRecord]:
        """Delete and return records of a kind that nobody used since: retention.

        At most 1,000, the longest idle first: call again until there are none.
        """
        ...

    def counts(self) -> Mapping[tuple[str, str], int]:
        """How many wrapped keys there are of each kind and root version."""
        ...

    def wrapped_by_others(self, root_version: str, limit: int) -> Sequence[ScopeKeyRecord]:
        """Records that another root version wrapped: what is left to rewrap. No empty ones."""
        ...

    def rewrap(self, scope: ScopeId, epoch: int, wrapped: bytes, root_version: str) -> None: ...


class LeaseSource(Protocol):
    """Where a worker gets keys: a ticket in, leases out (T10)."""

    def lease(self, ticket: str) -> Sequence[Lease]:
        """Return leases for the ticket's scopes. Blocking, bounded in time.

        A scope whose epoch is over has none. Raises `Refused` for a ticket that does not hold,
        `Unavailable` where the broker is out of reach.
        """
        ...
