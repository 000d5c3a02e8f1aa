"""Receipts of revocations in the registry's table: `ports.Receipts`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import ColumnElement, and_, insert, or_, select, update

from scopekv.adapters.registry import tables as t
from scopekv.adapters.registry.session import Session
from scopekv.errors import Conflict, Misuse, NotFound
from scopekv.ports import Receipt, ReceiptLine

STATES = ("pending", "incomplete", "done")
FIELD_CHARS_MAX = 512


class SqlReceipts:
    """Receipts, in the transaction of the session."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def create(self, actor: str, subject: str, tags: Sequence[str]) -> Receipt:
        """A new one, pending and without lines."""
        self._session.must_write()
        uid = self._session.new_uid("rcp")
        self._session.run(
            insert(t.receipts).values(
                uid=uid,
                at=self._session.now,
                actor=actor[:FIELD_CHARS_MAX],
                subject=subject[:FIELD_CHARS_MAX],
                tags=json.dumps(list(tags)),
                state="pending",
                lines="[]",
            )
        )
        return self._must(uid)

    def get(self, uid: str) -> Receipt | None:
        row = self._session.first(select(t.receipts).where(t.receipts.c.uid == uid))
        return _receipt(row) if row else None

    def list(self, after: str, limit: int) -> Sequence[Receipt]:
        """Newest first, after the receipt `after`; `NotFound` if there is none of that uid."""
        column = t.receipts.c
        where: ColumnElement[bool] = column.uid != ""
        if after:
            mark = self._must(after)
            where = or_(column.at < mark.at, and_(column.at == mark.at, column.uid < mark.uid))
        query = select(t.receipts).where(where).order_by(column.at.desc(), column.uid.desc())
        return [_receipt(row) for row in self._session.rows(query.limit(limit))]

    def pending(self) -> Sequence[Receipt]:
        column = t.receipts.c
        query = select(t.receipts).where(column.state.in_(STATES[:2]))
        return [_receipt(row) for row in self._session.rows(query.order_by(column.at, column.uid))]

    def update(self, uid: str, state: str, lines: Sequence[ReceiptLine]) -> Receipt:
        """Replace state and lines. `Conflict` for one that is done."""
        self._session.must_write()
        if state not in STATES:
            raise Misuse(f"a receipt is {', '.join(STATES)}, not {state[:40]!r}")
        if self._must(uid).state == "done":
            raise Conflict("the receipt is done, and that is for good")
        self._session.run(
            update(t.receipts)
            .where(t.receipts.c.uid == uid)
            .values(
                state=state,
                lines=json.dumps([asdict(line) for line in lines]),
                finished_at=self._session.now if state == "done" else None,
            )
        )
        return self._must(uid)

    def _must(self, uid: str) -> Receipt:
        receipt = self.get(uid)
        if receipt is None:
            raise NotFound("the receipt does not exist; list them to see their ids")
        return receipt


def _receipt(row: Any) -> Receipt:
    return Receipt(
        row.uid,
        row.at,
        row.actor,
        row.subject,
        tuple(json.loads(row.tags)),
        row.state,
        tuple(ReceiptLine(**line) for line in json.loads(row.lines)),
        row.finished_at,
    )
