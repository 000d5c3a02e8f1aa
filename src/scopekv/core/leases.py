"""Leases: a scope key in a worker's hands, for a short while (L5)."""

from __future__ import annotations

from dataclasses import dataclass, field

from scopekv.core.scopes import ScopeId
from scopekv.errors import Misuse

KEY_BYTES = 32
ACCOUNT_BYTES = 16
LEASE_SECONDS_MAX = 3600
NOBODY = b"\xff" * ACCOUNT_BYTES  # the account of blocks whose lease has not come; no real one


@dataclass(frozen=True, slots=True)
class Lease:
    """One scope's key for one epoch.

    `lease_seconds` counts from receipt on the holder's monotonic clock. `retention_seconds`: how
    long blocks of this scope may be kept anywhere. `account`: whose share of a tier they fill.
    """

    scope: ScopeId
    epoch: int
    key: bytes = field(repr=False)
    lease_seconds: int
    retention_seconds: int
    account: bytes

    def __post_init__(self) -> None:
        if len(self.scope) != 16 or not 0 <= self.epoch < 2**63:
            raise Misuse("a lease has a scope id of 16 bytes and an epoch from 0")
        if len(self.key) != KEY_BYTES or len(self.account) != ACCOUNT_BYTES:
            raise Misuse("a lease has a key of 32 bytes and an account of 16")
        if not 0 < self.lease_seconds <= LEASE_SECONDS_MAX or self.retention_seconds < 1:
            raise Misuse(f"a lease lasts 1 to {LEASE_SECONDS_MAX} seconds; retention is from 1 on")
