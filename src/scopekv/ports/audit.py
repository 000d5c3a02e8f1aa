"""The port of the audit log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One line of the audit log. `digest` covers the entry and the digest before it."""

    seq: int
    at_ms: int
    actor: str
    action: str
    resource: str
    outcome: str
    reason: str
    digest: bytes


@dataclass(frozen=True, slots=True)
class AuditHead:
    """The last entry's number and digest; noted elsewhere, it shows a log cut short."""

    seq: int
    digest: bytes


class AuditLog(Protocol):
    """The append-only, hash-chained log. There is no way to change or remove an entry.

    `last`: its length. `verify` recomputes the chain and returns its head; `Corrupt` names the
    first bad entry.
    """

    def append(
        self, *, actor: str, action: str, resource: str, outcome: str, reason: str
    ) -> None: ...
    def list(self, after: int, limit: int) -> Sequence[AuditEntry]: ...
    def last(self) -> int: ...
    def verify(self) -> AuditHead: ...
