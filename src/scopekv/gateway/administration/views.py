"""What administration answers with: plain structs. Times are whole Unix seconds.

None but `NewKeyView` holds a secret, and that one keeps it out of its repr.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from scopekv import ports
from scopekv.core import receipts as core

Item = TypeVar("Item")
LIMIT_MAX = 1000
LIMIT_DEFAULT = 100


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """One page of a list; ask for the next with `after` = `next`."""

    kind: str = msgspec.field(name="object", default="list")
    data: list[object]
    has_more: bool
    next: str | None


class OrgView(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    uid: str
    blocked: bool
    created_at: int


class AccountView(msgspec.Struct, frozen=True, kw_only=True):
    org: str
    name: str
    uid: str
    kind: str
    roles: list[str]
    groups: list[str]
    blocked: bool
    created_at: int


class GroupView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`receipt`: of the purge that an act began, if it took something away."""

    name: str
    uid: str
    members: list[str]
    receipt: str | None = None


class KeyView(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    owner: str
    label: str
    blocked: bool
    created_at: int
    expires_at: int | None


class NewKeyView(msgspec.Struct, frozen=True, kw_only=True):
    """A key just made: the only time its secret is shown."""

    key: KeyView
    secret: str

    def __repr__(self) -> str:
        return f"NewKeyView(key={self.key!r}, secret=...)"


class RevisionView(msgspec.Struct, frozen=True, kw_only=True):
    revision: int
    sha256: str
    size_bytes: int
    created_at: int


class DocumentView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`org` is the owner, "" for the deployment's own documents. `receipt`: as for groups."""

    id: str
    org: str
    name: str
    audience: str
    revision: int
    sha256: str
    size_bytes: int
    withdrawn: bool
    created_at: int
    changed_at: int
    receipt: str | None = None


class DocumentDetail(msgspec.Struct, frozen=True, kw_only=True):
    document: DocumentView
    epoch: int
    revisions: list[RevisionView]


class TextView(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    revision: int
    text: str


class RulesView(msgspec.Struct, frozen=True, kw_only=True):
    org: str
    tools: str
    system: str
    messages: str


class EpochView(msgspec.Struct, frozen=True, kw_only=True):
    scope: str
    epoch: int


class AuditView(msgspec.Struct, frozen=True, kw_only=True):
    seq: int
    at_ms: int
    actor: str
    action: str
    resource: str
    outcome: str
    reason: str
    digest: str


class AuditCheck(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the log is whole. `head` is `SEQ:DIGEST` of the last entry: note it elsewhere."""

    intact: bool
    head: str
    detail: str


class Deleted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    deleted: str
    receipt: str | None = None


class ReceiptLineView(msgspec.Struct, frozen=True, kw_only=True):
    """`removed`: at least so many blocks or objects. `reason`: see `core.receipts.LineReason`."""

    instance: str
    tier: str
    state: str
    removed: int
    reason: str
    at: int


class ReceiptView(msgspec.Struct, frozen=True, kw_only=True):
    """`state`: pending (no instance asked yet), busy, incomplete, done, or closed by an operator.

    `scopes`: how many (scope, epoch) pairs it is about. `advice`: what to do, a sentence a reason.
    """

    id: str
    at: int
    actor: str
    subject: str
    scopes: int
    state: str
    lines: list[ReceiptLineView]
    advice: list[str]
    finished_at: int | None


class RevocationView(msgspec.Struct, frozen=True, kw_only=True):
    """`effect`: what no request reads again once the receipt's state is done."""

    effect: str
    keys_destroyed: int
    receipt: ReceiptView


def page(
    items: Sequence[Item], limit: int, view: Callable[[Item], object], mark: Callable[[Item], str]
) -> Page:
    """The first `limit` of `items`, of which one more than `limit` was asked for."""
    shown = items[:limit]
    more = len(items) > limit
    return Page(
        data=[view(item) for item in shown],
        has_more=more,
        next=mark(shown[-1]) if more else None,
    )


def org(item: ports.Org) -> OrgView:
    return OrgView(
        name=item.name, uid=item.uid, blocked=item.blocked, created_at=int(item.created_at)
    )


def account(item: ports.Account) -> AccountView:
    who = item.principal
    return AccountView(
        org=who.org,
        name=who.name,
        uid=who.uid,
        kind="service_account" if who.service else "user",
        roles=sorted(who.roles),
        groups=sorted(who.groups),
        blocked=item.blocked,
        created_at=int(item.created_at),
    )


def group(item: ports.Group, receipt: str | None = None) -> GroupView:
    return GroupView(name=item.name, uid=item.uid, members=list(item.members), receipt=receipt)


def key(item: ports.ApiKey) -> KeyView:
    return KeyView(
        id=item.uid,
        owner=item.owner,
        label=item.label,
        blocked=item.blocked,
        created_at=int(item.created_at),
        expires_at=None if item.expires_at is None else int(item.expires_at),
    )


def revision(item: ports.Revision) -> RevisionView:
    return RevisionView(
        revision=item.revision,
        sha256=item.digest.hex(),
        size_bytes=item.size_bytes,
        created_at=int(item.created_at),
    )


def document(item: ports.DocumentRecord, receipt: str | None = None) -> DocumentView:
    return DocumentView(
        id=item.document.uid,
        org=item.org,
        name=item.name,
        audience=str(item.document.audience),
        revision=item.revision,
        sha256=item.digest.hex(),
        size_bytes=item.size_bytes,
        withdrawn=item.document.withdrawn,
        created_at=int(item.created_at),
        changed_at=int(item.changed_at),
        receipt=receipt,
    )


def audit(item: ports.AuditEntry) -> AuditView:
    return AuditView(
        seq=item.seq,
        at_ms=item.at_ms,
        actor=item.actor,
        action=item.action,
        resource=item.resource,
        outcome=item.outcome,
        reason=item.reason,
        digest=item.digest.hex(),
    )


def receipt(item: ports.Receipt) -> ReceiptView:
    open_reasons = {line.reason for line in item.lines if line.state == core.LineState.INCOMPLETE}
    return ReceiptView(
        id=item.uid,
        at=int(item.at),
        actor=item.actor,
        subject=item.subject.partition(" ")[2],
        scopes=len(item.tags),
        state=_receipt_state(item),
        lines=[
            ReceiptLineView(
                instance=line.instance,
                tier=line.tier,
                state=line.state,
                removed=line.removed,
                reason=line.reason,
                at=int(line.at),
            )
            for line in item.lines
        ],
        advice=[text for reason, text in core.NEXT.items() if reason in open_reasons],
        finished_at=None if item.finished_at is None else int(item.finished_at),
    )


def _receipt_state(item: ports.Receipt) -> str:
    states = {line.state for line in item.lines}
    if core.LineState.CLOSED in states:
        return "closed"
    if item.state == core.ReceiptState.PENDING and states:
        return "busy"
    return item.state
