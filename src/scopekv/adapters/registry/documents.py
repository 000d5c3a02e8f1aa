"""Published documents, role rules and epochs in the registry's tables."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, Select, bindparam, func, insert, select, update

from scopekv.adapters.registry import tables as t
from scopekv.adapters.registry.principals import SqlAccounts, SqlGroups, SqlOrgs
from scopekv.adapters.registry.session import Session
from scopekv.core.encoding import encode
from scopekv.core.policy import Document, Level, RoleRules
from scopekv.core.scopes import Audience, AudienceKind, Scope, ScopeKind, check_name
from scopekv.errors import Conflict, Misuse, NotFound, TooLarge
from scopekv.ports import DocumentRecord, PublishedDocument, Revision

TEXT_BYTES_MAX = 4 * 1024 * 1024
_EPOCH = select(t.epochs.c.epoch).where(t.epochs.c.owner == bindparam("scope_owner"))


class SqlDocuments:
    """Documents, in the transaction of the session."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def get(self, uid: str) -> DocumentRecord | None:
        row = self._session.first(shown_columns().where(t.documents.c.uid == uid))
        return record(row) if row else None

    def list(self) -> Sequence[DocumentRecord]:
        query = shown_columns().order_by(func.coalesce(t.orgs.c.name, ""), t.documents.c.name)
        return [record(row) for row in self._session.rows(query.order_by(t.documents.c.uid))]

    def text(self, uid: str) -> str:
        """The current text, exactly as published; empty once withdrawn."""
        row = self._session.first(select(t.documents.c.text).where(t.documents.c.uid == uid))
        return bytes(row.text).decode("utf-8") if row else ""

    def current(self) -> Sequence[PublishedDocument]:
        """Every document that is not withdrawn, with its text and its end, if it has one."""
        ends = t.cached_contents.c
        query = (
            shown_columns()
            .add_columns(t.documents.c.text, ends.expires_at)
            .outerjoin(t.cached_contents, ends.document_uid == t.documents.c.uid)
            .where(t.documents.c.withdrawn.is_(False))
        )
        return [
            PublishedDocument(
                *(record(row).document, row.name, bytes(row.text).decode("utf-8"), row.revision),
                expires_at=row.expires_at,
            )
            for row in self._session.rows(query.order_by(t.documents.c.uid))
        ]

    def revisions(self, uid: str) -> Sequence[Revision]:
        columns = t.revisions.c
        query = (
            select(columns.revision, columns.digest, columns.size_bytes, columns.created_at)
            .where(columns.document_uid == uid)
            .order_by(columns.revision)
        )
        return [Revision(*row) for row in self._session.rows(query)]

    def publish(self, org_uid: str, name: str, audience: Audience, text: str) -> DocumentRecord:
        """Store a new document. `Conflict`, `NotFound`, `TooLarge`, `Misuse`: see the port."""
        check_name(name, "document")
        data = _bytes(text)
        self._session.bump("documents")
        self._must_exist(audience)
        same = (t.documents.c.owner == org_uid) & (t.documents.c.name == name)
        if self._session.rows(shown_columns().where(same & t.documents.c.withdrawn.is_(False))):
            raise Conflict(
                f"document {name!r} is published already; publish a new revision of it, or "
                "choose another name"
            )
        uid = self._session.new_uid("doc")
        self._session.run(
            insert(t.documents).values(
                uid=uid,
                org_uid=org_uid or None,
                owner=org_uid,
                name=name,
                audience=str(audience),
                revision=1,
                digest=hashlib.sha256(data).digest(),
                size_bytes=len(data),
                text=data,
                withdrawn=False,
                created_at=self._session.now,
                changed_at=self._session.now,
            )
        )
        self._remember(uid, 1, data)
        return self._live(uid)

    def revise(self, uid: str, text: str) -> DocumentRecord:
        """Replace the text and raise the epoch. The same text again changes nothing."""
        data = _bytes(text)
        self._session.must_write()
        record = self._live(uid)
        if hashlib.sha256(data).digest() == record.digest:
            return record
        self._change(
            uid,
            revision=record.revision + 1,
            digest=hashlib.sha256(data).digest(),
            size_bytes=len(data),
            text=data,
        )
        self._remember(uid, record.revision + 1, data)
        return self._live(uid)

    def set_audience(self, uid: str, audience: Audience) -> DocumentRecord:
        """Change who may read it and raise the epoch. The same again changes nothing."""
        self._session.must_write()
        if self._live(uid).document.audience == audience:
            return self._live(uid)
        self._must_exist(audience)
        self._change(uid, audience=str(audience))
        return self._live(uid)

    def withdraw(self, uid: str) -> DocumentRecord:
        """Take it out for good, drop its text and raise the epoch."""
        self._session.must_write()
        self._live(uid)
        self._change(uid, withdrawn=True, text=b"")
        record = self.get(uid)
        if record is None:
            raise NotFound("the document does not exist")
        return record

    def _change(self, uid: str, **values: object) -> None:
        self._session.bump("documents")
        self._session.run(
            update(t.documents)
            .where(t.documents.c.uid == uid)
            .values(changed_at=self._session.now, **values)
        )
        SqlEpochs(self._session).bump(Scope(ScopeKind.DOCUMENT, (uid,)))

    def _remember(self, uid: str, revision: int, data: bytes) -> None:
        self._session.run(
            insert(t.revisions).values(
                document_uid=uid,
                revision=revision,
                digest=hashlib.sha256(data).digest(),
                size_bytes=len(data),
                created_at=self._session.now,
            )
        )

    def _live(self, uid: str) -> DocumentRecord:
        record = self.get(uid)
        if record is None:
            raise NotFound("the document does not exist")
        if record.document.withdrawn:
            raise Conflict(
                f"document {record.name!r} was withdrawn, and that is for good; publish it anew"
            )
        return record

    def _must_exist(self, audience: Audience) -> None:
        if audience.kind is AudienceKind.PUBLIC:
            return
        org = SqlOrgs(self._session).get(audience.path[0])
        found: object = org
        if org and audience.kind is AudienceKind.GROUP:
            found = SqlGroups(self._session).get(org.uid, audience.path[1])
        elif org and audience.kind is AudienceKind.USER:
            found = SqlAccounts(self._session).get(org.uid, audience.path[1])
        if found is None:
            raise NotFound(f"audience {audience} does not exist; create it first")


class SqlRules:
    """Role rules; the defaults where none are set."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def get(self, org_uid: str) -> RoleRules:
        row = self._session.first(select(t.rules).where(t.rules.c.org_uid == org_uid))
        if row is None:
            return RoleRules()
        return RoleRules(Level(row.tools), Level(row.system), Level(row.messages))

    def set(self, org_uid: str, rules: RoleRules) -> None:
        self._session.bump("rules")
        values = {
            "tools": rules.tools.value,
            "system": rules.system.value,
            "messages": rules.messages.value,
        }
        if not self._session.run(
            update(t.rules).where(t.rules.c.org_uid == org_uid).values(**values)
        ):
            self._session.run(insert(t.rules).values(org_uid=org_uid, **values))


class SqlEpochs:
    """Epochs. They outlive what they count for: a uid is never used again."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def get(self, scope: Scope) -> int:
        row = self._session.first(_EPOCH, {"scope_owner": owner_bytes(scope)})
        return int(row.epoch) if row else 0

    def bump(self, scope: Scope) -> int:
        """Raise the epoch of `scope.epoch_owner` and return it."""
        self._session.bump("epochs")
        epoch, owner = self.get(scope) + 1, owner_bytes(scope)
        if epoch == 1:
            self._session.run(insert(t.epochs).values(owner=owner, epoch=epoch))
        else:
            self._session.run(update(t.epochs).where(t.epochs.c.owner == owner).values(epoch=epoch))
        return epoch


def owner_bytes(scope: Scope) -> bytes:
    """How tables name the scope whose epoch counts for `scope`."""
    owner = scope.epoch_owner
    return encode("scopekv/epoch/1", owner.kind.value, *owner.path)


def _bytes(text: str) -> bytes:
    if not text:
        raise Misuse("a document has at least one character")
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise Misuse(
            "the document's text holds half a surrogate pair: it is not Unicode"
        ) from error
    if len(data) > TEXT_BYTES_MAX:
        raise TooLarge(f"the document has {len(data)} bytes; the limit is {TEXT_BYTES_MAX}")
    return data


def shown_columns() -> Select[Any]:
    """The columns of a document without its text."""
    columns = [column for column in t.documents.c if column is not t.documents.c.text]
    owner = t.orgs.c.uid == t.documents.c.org_uid
    return select(*columns, t.orgs.c.name.label("org")).outerjoin(t.orgs, owner)


def record(row: Row[Any]) -> DocumentRecord:
    return DocumentRecord(
        Document(row.uid, Audience.parse(row.audience), row.withdrawn),
        row.org_uid or "",
        row.org or "",
        row.name,
        row.revision,
        bytes(row.digest),
        row.size_bytes,
        row.created_at,
        row.changed_at,
    )
