"""Organisations, accounts and groups in the registry's tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, delete, func, insert, select, update

from scopekv.adapters.registry import tables as t
from scopekv.adapters.registry.session import Session
from scopekv.core.scopes import Audience, AudienceKind, Principal, check_name
from scopekv.errors import Conflict, NotFound
from scopekv.ports import Account, Group, Org

_COUNTER = "principals"


class SqlOrgs:
    """Organisations."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def get(self, name: str) -> Org | None:
        row = self._session.first(select(t.orgs).where(t.orgs.c.name == name))
        return Org(*row) if row else None

    def list(self, after: str, limit: int) -> Sequence[Org]:
        query = select(t.orgs).where(t.orgs.c.name > after).order_by(t.orgs.c.name).limit(limit)
        return [Org(*row) for row in self._session.rows(query)]

    def create(self, name: str) -> Org:
        """`Conflict` for a name in use, `Misuse` for what is no name."""
        check_name(name, "organisation")
        self._session.bump(_COUNTER)
        if self.get(name):
            raise Conflict(f"organisation {name!r} exists already; choose another name")
        org = Org(self._session.new_uid("org"), name, False, self._session.now)
        self._session.run(
            insert(t.orgs).values(uid=org.uid, name=name, blocked=False, created_at=org.created_at)
        )
        return org

    def set_blocked(self, uid: str, blocked: bool) -> None:
        self._session.bump(_COUNTER)
        changed = update(t.orgs).where(t.orgs.c.uid == uid).values(blocked=blocked)
        _found(self._session.run(changed), "organisation")

    def delete(self, uid: str) -> None:
        """Remove it with its accounts, groups and keys. `Conflict` while a document names it."""
        self._session.bump(_COUNTER)
        row = self._session.first(select(t.orgs.c.name).where(t.orgs.c.uid == uid))
        if row is None:
            raise NotFound("the organisation does not exist")
        refuse_while_named(
            self._session,
            f"organisation {row.name!r}",
            (t.documents.c.org_uid == uid)
            | (t.documents.c.audience == str(Audience(AudienceKind.ORG, (row.name,))))
            | _starts_with(f"group:{row.name}/")
            | _starts_with(f"user:{row.name}/"),
        )
        self._session.run(delete(t.orgs).where(t.orgs.c.uid == uid))


class SqlAccounts:
    """Users and service accounts."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def get(self, org_uid: str, name: str) -> Account | None:
        where = (t.accounts.c.org_uid == org_uid) & (t.accounts.c.name == name)
        return next(iter(self._load(where, 1)), None)

    def by_uid(self, uid: str) -> Account | None:
        return next(iter(self._load(t.accounts.c.uid == uid, 1)), None)

    def list(self, org_uid: str, service: bool, after: str, limit: int) -> Sequence[Account]:
        account = t.accounts.c
        where = (account.org_uid == org_uid) & (account.service.is_(service))
        return self._load(where & (account.name > after), limit)

    def create(self, org_uid: str, name: str, service: bool) -> Account:
        """`Conflict` for a name that a user or service account of the organisation has."""
        check_name(name, "service account" if service else "user")
        self._session.bump(_COUNTER)
        if self.get(org_uid, name):
            raise Conflict(f"an account {name!r} exists already; choose another name")
        uid = self._session.new_uid("sva" if service else "usr")
        self._session.run(
            insert(t.accounts).values(
                uid=uid,
                org_uid=org_uid,
                name=name,
                service=service,
                blocked=False,
                created_at=self._session.now,
            )
        )
        return self._must(uid)

    def set_blocked(self, uid: str, blocked: bool) -> None:
        self._session.bump(_COUNTER)
        changed = update(t.accounts).where(t.accounts.c.uid == uid).values(blocked=blocked)
        _found(self._session.run(changed), "account")

    def grant(self, uid: str, role: str) -> None:
        """Add a role; the same again changes nothing."""
        self._session.bump(_COUNTER)
        if role not in self._must(uid).principal.roles:
            self._session.run(insert(t.roles).values(account_uid=uid, role=role))

    def revoke(self, uid: str, role: str) -> None:
        """Take a role; one that is not there changes nothing."""
        self._session.bump(_COUNTER)
        self._must(uid)
        held = (t.roles.c.account_uid == uid) & (t.roles.c.role == role)
        self._session.run(delete(t.roles).where(held))

    def delete(self, uid: str) -> None:
        """Remove it with its keys. `Conflict` while it is a document's audience."""
        self._session.bump(_COUNTER)
        who = self._must(uid).principal
        audience = Audience(AudienceKind.USER, (who.org, who.name))
        named = t.documents.c.audience == str(audience)
        refuse_while_named(self._session, f"account {who.org}/{who.name}", named)
        self._session.run(delete(t.accounts).where(t.accounts.c.uid == uid))

    def _must(self, uid: str) -> Account:
        account = self.by_uid(uid)
        if account is None:
            raise NotFound("the account does not exist")
        return account

    def _load(self, where: ColumnElement[bool], limit: int) -> Sequence[Account]:
        query = (
            select(t.accounts, t.orgs.c.name.label("org"))
            .join(t.orgs, t.orgs.c.uid == t.accounts.c.org_uid)
            .where(where)
            .order_by(t.accounts.c.name)
            .limit(limit)
        )
        rows = self._session.rows(query)
        uids = [row.uid for row in rows]
        held = _names(
            self._session,
            select(t.roles.c.account_uid, t.roles.c.role).where(t.roles.c.account_uid.in_(uids)),
        )
        groups = _names(
            self._session,
            select(t.members.c.account_uid, t.groups.c.name)
            .join(t.groups, t.groups.c.uid == t.members.c.group_uid)
            .where(t.members.c.account_uid.in_(uids)),
        )
        return [
            Account(
                Principal(
                    org=row.org,
                    name=row.name,
                    org_uid=row.org_uid,
                    uid=row.uid,
                    groups=frozenset(groups.get(row.uid, ())),
                    roles=frozenset(held.get(row.uid, ())),
                    service=row.service,
                ),
                row.blocked,
                row.created_at,
            )
            for row in rows
        ]


class SqlGroups:
    """Groups and their members."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def get(self, org_uid: str, name: str) -> Group | None:
        where = (t.groups.c.org_uid == org_uid) & (t.groups.c.name == name)
        return next(iter(self._load(where, 1)), None)

    def list(self, org_uid: str, after: str, limit: int) -> Sequence[Group]:
        return self._load((t.groups.c.org_uid == org_uid) & (t.groups.c.name > after), limit)

    def create(self, org_uid: str, name: str) -> Group:
        """`Conflict` for a name in use in the organisation."""
        check_name(name, "group")
        self._session.bump(_COUNTER)
        if self.get(org_uid, name):
            raise Conflict(f"group {name!r} exists already; choose another name")
        group = Group(self._session.new_uid("grp"), org_uid, name, ())
        self._session.run(insert(t.groups).values(uid=group.uid, org_uid=org_uid, name=name))
        return group

    def add(self, uid: str, account_uid: str) -> None:
        """Add a member of the same organisation; the same again changes nothing."""
        self._session.bump(_COUNTER)
        same_org = (
            select(func.count())
            .select_from(t.groups.join(t.accounts, t.groups.c.org_uid == t.accounts.c.org_uid))
            .where((t.groups.c.uid == uid) & (t.accounts.c.uid == account_uid))
        )
        if not self._session.one(same_org)[0]:
            raise NotFound("the group or the account does not exist in this organisation")
        if self._session.first(select(t.members).where(_membership(uid, account_uid))) is None:
            self._session.run(insert(t.members).values(group_uid=uid, account_uid=account_uid))

    def remove(self, uid: str, account_uid: str) -> None:
        """Take a member out; one that is not in it changes nothing."""
        self._session.bump(_COUNTER)
        self._session.run(delete(t.members).where(_membership(uid, account_uid)))

    def delete(self, uid: str) -> None:
        """Remove it. `Conflict` while it is a document's audience."""
        self._session.bump(_COUNTER)
        query = (
            select(t.groups.c.name, t.orgs.c.name.label("org"))
            .join(t.orgs, t.orgs.c.uid == t.groups.c.org_uid)
            .where(t.groups.c.uid == uid)
        )
        row = self._session.first(query)
        if row is None:
            raise NotFound("the group does not exist")
        audience = Audience(AudienceKind.GROUP, (row.org, row.name))
        named = t.documents.c.audience == str(audience)
        refuse_while_named(self._session, f"group {row.org}/{row.name}", named)
        self._session.run(delete(t.groups).where(t.groups.c.uid == uid))

    def _load(self, where: ColumnElement[bool], limit: int) -> Sequence[Group]:
        query = select(t.groups).where(where).order_by(t.groups.c.name).limit(limit)
        rows = self._session.rows(query)
        names = _names(
            self._session,
            select(t.members.c.group_uid, t.accounts.c.name)
            .join(t.accounts, t.accounts.c.uid == t.members.c.account_uid)
            .where(t.members.c.group_uid.in_([row.uid for row in rows])),
        )
        return [
            Group(row.uid, row.org_uid, row.name, tuple(sorted(names.get(row.uid, ()))))
            for row in rows
        ]


def refuse_while_named(session: Session, what: str, named: ColumnElement[bool]) -> None:
    """`Conflict` while a live document is for `what`: its successor must not inherit it."""
    query = (
        select(t.documents.c.name, t.documents.c.uid)
        .where(named & t.documents.c.withdrawn.is_(False))
        .order_by(t.documents.c.name)
        .limit(4)
    )
    rows = session.rows(query)
    if rows:
        shown = ", ".join(f"{row.name} ({row.uid})" for row in rows[:3])
        raise Conflict(
            f"{what} still has documents or is their audience: {shown}"
            f"{' and more' if len(rows) > 3 else ''}; withdraw them, or give them another "
            "audience, then delete it"
        )


def _membership(group_uid: str, account_uid: str) -> ColumnElement[bool]:
    return (t.members.c.group_uid == group_uid) & (t.members.c.account_uid == account_uid)


def _starts_with(prefix: str) -> ColumnElement[bool]:
    """Not LIKE, which in SQLite takes `acme` for `ACME`."""
    return func.substr(t.documents.c.audience, 1, len(prefix)) == prefix


def _found(rows: int, what: str) -> None:
    if rows == 0:
        raise NotFound(f"the {what} does not exist")


def _names(session: Session, query: Any) -> dict[str, list[str]]:
    """Collect the second column of a query by its first."""
    names: dict[str, list[str]] = {}
    for owner, name in session.rows(query):
        names.setdefault(owner, []).append(name)
    return names
