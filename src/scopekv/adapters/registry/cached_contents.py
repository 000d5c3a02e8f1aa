"""Cached contents in the registry's tables: documents with an end of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, delete, insert, update

from scopekv.adapters.registry import tables as t
from scopekv.adapters.registry.documents import record, shown_columns
from scopekv.adapters.registry.session import Session
from scopekv.errors import Conflict, NotFound
from scopekv.ports import CachedContent

_C = t.cached_contents.c


class SqlCachedContents:
    """Cached contents, in the transaction of the session."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def get(self, uid: str) -> CachedContent | None:
        found = self._where(_C.document_uid == uid)
        return found[0] if found else None

    def of_account(self, account_uid: str) -> Sequence[CachedContent]:
        return self._where(_C.account_uid == account_uid)

    def of_org(self, org_uid: str) -> Sequence[CachedContent]:
        return self._where(t.documents.c.owner == org_uid)

    def due(self, at: float) -> Sequence[CachedContent]:
        return self._where(_C.expires_at <= at)

    def add(
        self,
        uid: str,
        account_uid: str,
        *,
        model: str,
        display_name: str,
        tokens: int | None,
        expires_at: float,
    ) -> CachedContent:
        """Give the live document `uid` an end."""
        self._session.bump("documents")
        self._session.run(
            insert(t.cached_contents).values(
                document_uid=uid,
                account_uid=account_uid,
                model=model,
                display_name=display_name,
                tokens=tokens,
                expires_at=expires_at,
            )
        )
        return self._live(uid)

    def extend(self, uid: str, expires_at: float) -> CachedContent:
        """Set another end, earlier or later."""
        self._session.bump("documents")
        self._live(uid)
        self._session.run(
            update(t.cached_contents).where(_C.document_uid == uid).values(expires_at=expires_at)
        )
        self._session.run(
            update(t.documents).where(t.documents.c.uid == uid).values(changed_at=self._session.now)
        )
        return self._live(uid)

    def drop(self, uid: str) -> None:
        """Forget a withdrawn document. `Conflict` for one that is live."""
        self._session.bump("documents")
        if self.get(uid) is not None:
            raise Conflict("a live document cannot be forgotten; withdraw it first")
        self._session.run(delete(t.documents).where(t.documents.c.uid == uid))

    def _live(self, uid: str) -> CachedContent:
        found = self.get(uid)
        if found is None:
            raise NotFound("the cached content does not exist")
        return found

    def _where(self, condition: ColumnElement[bool]) -> list[CachedContent]:
        query = (
            shown_columns()
            .add_columns(
                *(_C.account_uid, _C.model, _C.display_name, _C.tokens, _C.expires_at),
            )
            .join(t.cached_contents, _C.document_uid == t.documents.c.uid)
            .where(condition & t.documents.c.withdrawn.is_(False))
            .order_by(t.documents.c.created_at, t.documents.c.uid)
        )
        return [_read(row) for row in self._session.rows(query)]


def _read(row: Any) -> CachedContent:
    return CachedContent(
        record(row), row.account_uid, row.model, row.display_name, row.tokens, row.expires_at
    )
