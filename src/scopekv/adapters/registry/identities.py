"""Identities in the registry's tables: which account a person of a provider has."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import delete, insert, select

from scopekv.adapters.registry import tables as t
from scopekv.adapters.registry.principals import SqlAccounts
from scopekv.adapters.registry.session import Session
from scopekv.errors import Misuse, NotFound

KEY_BYTES = 32
_PAGE = 500  # names in one statement


class SqlIdentities:
    """Links, in the transaction of the session."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def account_uid(self, key: bytes) -> str | None:
        query = select(t.identities.c.account_uid).where(t.identities.c.key == key)
        row = self._session.first(query)
        return str(row.account_uid) if row else None

    def link(self, key: bytes, account_uid: str) -> None:
        """`NotFound` for an account that does not exist."""
        self._session.bump("principals")
        if len(key) != KEY_BYTES:
            raise Misuse(f"an identity's key has {KEY_BYTES} bytes, not {len(key)}")
        if SqlAccounts(self._session).by_uid(account_uid) is None:
            raise NotFound("the account does not exist")
        self._session.run(delete(t.identities).where(t.identities.c.key == key))
        self._session.run(
            insert(t.identities).values(
                key=key, account_uid=account_uid, linked_at=self._session.now
            )
        )

    def existing_groups(self, org_uid: str, names: Iterable[str]) -> frozenset[str]:
        wanted = sorted(names)
        found: set[str] = set()
        for start in range(0, len(wanted), _PAGE):
            some = wanted[start : start + _PAGE]
            query = select(t.groups.c.name).where(
                (t.groups.c.org_uid == org_uid) & t.groups.c.name.in_(some)
            )
            found.update(str(row.name) for row in self._session.rows(query))
        return frozenset(found)
