"""The port of receipts: what became of a revocation, tier by tier."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class ReceiptLine:
    """What one tier of one instance did about a revocation. `removed`: objects or blocks.

    `state` as a receipt's, or `busy`; `reason` is a closed code, empty where all is done.
    """

    instance: str
    tier: str
    state: str
    removed: int
    reason: str
    at: float


@dataclass(frozen=True, slots=True)
class Receipt:
    """The record of one revocation: who, what, and how far it has come.

    `tags`: the (scope, epoch) pairs that must go, `<scope id in hex>:<epoch>`, or for an owning
    scope `owner/<kind>/<uids>:<epoch>` (`core.receipts.name_pair`, `name_owner`). `state`:
    `pending`, `done` or `incomplete`. `finished_at` is None until it is done.
    """

    uid: str
    at: float
    actor: str
    subject: str
    tags: tuple[str, ...]
    state: str
    lines: tuple[ReceiptLine, ...]
    finished_at: float | None


class Receipts(Protocol):
    """Receipts of revocations. They stay: there is no way to delete one.

    `list` is newest first, after the one whose uid is `after`. `pending` is all that are not done,
    oldest first. `update` replaces state and lines; done is for good (`Conflict`).
    """

    def create(self, actor: str, subject: str, tags: Sequence[str]) -> Receipt: ...
    def get(self, uid: str) -> Receipt | None: ...
    def list(self, after: str, limit: int) -> Sequence[Receipt]: ...
    def pending(self) -> Sequence[Receipt]: ...
    def update(self, uid: str, state: str, lines: Sequence[ReceiptLine]) -> Receipt: ...
