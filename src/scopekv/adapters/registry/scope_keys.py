"""Wrapped sealing keys in the registry's table: `ports.ScopeKeys`.

Noting a key changes no decision, so it raises no counter; destroying keys raises `epochs`, so that
brokers forget them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, bindparam, delete, func, select, text, update

from scopekv.adapters.registry import tables as t
from scopekv.adapters.registry.documents import SqlEpochs, owner_bytes
from scopekv.adapters.registry.session import Session
from scopekv.core.encoding import decode
from scopekv.core.scopes import Scope, ScopeId, ScopeKind
from scopekv.errors import Corrupt, Misuse
from scopekv.ports import ScopeKeyRecord

IDLE_BATCH = 1000
_OWNER = "scopekv/epoch/1"
_GET = select(t.scope_keys).where(
    t.scope_keys.c.scope == bindparam("of_scope"), t.scope_keys.c.epoch == bindparam("of_epoch")
)
# Keeps the first key that is not empty, and the latest time. The same words in SQLite and
# PostgreSQL; on the right of SET, both take the row's values from before.
_NOTE = text("""
INSERT INTO scopekv_scope_keys
  (scope, epoch, kind, owner, account, wrapped, root_version, noted_at)
VALUES (:scope, :epoch, :kind, :owner, :account, :wrapped, :root_version, :noted_at)
ON CONFLICT (scope, epoch) DO UPDATE SET
  noted_at = CASE WHEN scopekv_scope_keys.noted_at < excluded.noted_at
    THEN excluded.noted_at ELSE scopekv_scope_keys.noted_at END,
  wrapped = CASE WHEN length(scopekv_scope_keys.wrapped) = 0
    THEN excluded.wrapped ELSE scopekv_scope_keys.wrapped END,
  root_version = CASE WHEN length(scopekv_scope_keys.wrapped) = 0
    THEN excluded.root_version ELSE scopekv_scope_keys.root_version END
WHERE scopekv_scope_keys.noted_at < excluded.noted_at
  OR (length(scopekv_scope_keys.wrapped) = 0 AND length(excluded.wrapped) > 0)
""")

_WRAPPED = func.length(t.scope_keys.c.wrapped) > 0


class SqlScopeKeys:
    """Scope keys, in the transaction of the session."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def note(self, record: ScopeKeyRecord) -> bool:
        """Keep it, or refresh `noted_at` and fill in a key that is missing.

        False where the owner's epoch is another.
        """
        self._session.must_write()
        if SqlEpochs(self._session).get(record.owner) != record.epoch:
            return False
        self._session.run(_NOTE, _values(record))
        return True

    def get(self, scope: ScopeId, epoch: int) -> ScopeKeyRecord | None:
        row = self._session.first(_GET, {"of_scope": bytes(scope), "of_epoch": epoch})
        return _record(row) if row else None

    def of_owner(self, owner: Scope, below_epoch: int) -> Sequence[ScopeKeyRecord]:
        return self._load(_below(owner, below_epoch))

    def destroy(self, owner: Scope, below_epoch: int) -> int:
        self._session.must_write()
        count = self._session.run(delete(t.scope_keys).where(_below(owner, below_epoch)))
        if count:
            self._session.bump("epochs")
        return count

    def destroy_idle(self, kind: str, noted_before: float) -> Sequence[ScopeKeyRecord]:
        """No counter rises: what was idle so long is in no broker's memory."""
        self._session.must_write()
        column = t.scope_keys.c
        idle = self._load(
            (column.kind == kind) & (column.noted_at < noted_before), column.noted_at, IDLE_BATCH
        )
        for record in idle:
            self._session.run(delete(t.scope_keys).where(_is(record.scope, record.epoch)))
        return idle

    def wrapped_by_others(self, root_version: str, limit: int) -> Sequence[ScopeKeyRecord]:
        other = (t.scope_keys.c.root_version != root_version) & _WRAPPED
        return self._load(other, t.scope_keys.c.scope, limit)

    def rewrap(self, scope: ScopeId, epoch: int, wrapped: bytes, root_version: str) -> None:
        self._session.must_write()
        change = update(t.scope_keys).where(_is(scope, epoch))
        self._session.run(change.values(wrapped=wrapped, root_version=root_version))

    def counts(self) -> Mapping[tuple[str, str], int]:
        columns = (t.scope_keys.c.kind, t.scope_keys.c.root_version)
        query = select(*columns, func.count()).where(_WRAPPED).group_by(*columns)
        return {(row[0], row[1]): int(row[2]) for row in self._session.rows(query)}

    def _load(
        self,
        where: ColumnElement[bool],
        order: ColumnElement[Any] = t.scope_keys.c.scope,
        limit: int | None = None,
    ) -> Sequence[ScopeKeyRecord]:
        query = select(t.scope_keys).where(where).order_by(order, t.scope_keys.c.epoch)
        return [_record(row) for row in self._session.rows(query.limit(limit))]


def _is(scope: ScopeId, epoch: int) -> ColumnElement[bool]:
    return (t.scope_keys.c.scope == scope) & (t.scope_keys.c.epoch == epoch)


def _below(owner: Scope, epoch: int) -> ColumnElement[bool]:
    return (t.scope_keys.c.owner == owner_bytes(owner)) & (t.scope_keys.c.epoch < epoch)


def _values(record: ScopeKeyRecord) -> dict[str, Any]:
    return {
        "scope": bytes(record.scope),
        "epoch": record.epoch,
        "kind": record.kind,
        "owner": owner_bytes(record.owner),
        "account": record.account,
        "wrapped": record.wrapped,
        "root_version": record.root_version,
        "noted_at": record.noted_at,
    }


def _record(row: Any) -> ScopeKeyRecord:
    return ScopeKeyRecord(
        scope=ScopeId(bytes(row.scope)),
        epoch=row.epoch,
        kind=row.kind,
        owner=_owner(bytes(row.owner)),
        account=bytes(row.account),
        wrapped=bytes(row.wrapped),
        root_version=row.root_version,
        noted_at=row.noted_at,
    )


def _owner(encoded: bytes) -> Scope:
    try:
        kind, *path = (str(part) for part in decode(_OWNER, encoded))
        return Scope(ScopeKind(kind), tuple(path))
    except (Misuse, ValueError) as error:
        raise Corrupt(
            "the registry's table of scope keys names no owner where it should"
        ) from error
