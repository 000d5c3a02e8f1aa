"""API keys in the registry's tables: the SHA-256 of a secret that nobody keeps."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Select, delete, insert, select, update

from scopekv.adapters.registry import tables as t
from scopekv.adapters.registry.principals import SqlAccounts
from scopekv.adapters.registry.session import Session
from scopekv.errors import Misuse, NotFound
from scopekv.ports import ApiKey, KeyRecord

LABEL_CHARS_MAX = 128


class SqlKeys:
    """API keys, in the transaction of the session."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def get(self, uid: str) -> ApiKey | None:
        row = self._session.first(_shown().where(t.keys.c.uid == uid))
        return ApiKey(*row) if row else None

    def list(self, org_uid: str, account_uid: str, after: str, limit: int) -> Sequence[ApiKey]:
        query = _shown().where((t.accounts.c.org_uid == org_uid) & (t.keys.c.uid > after))
        if account_uid:
            query = query.where(t.keys.c.account_uid == account_uid)
        return [ApiKey(*row) for row in self._session.rows(query.limit(limit))]

    def create(
        self, account_uid: str, digest: bytes, label: str, expires_at: float | None
    ) -> ApiKey:
        """Store the digest of a secret made elsewhere. `Misuse` for a label out of bounds."""
        self._session.bump("principals")
        if len(digest) != 32:
            raise Misuse("a key is stored as its SHA-256: 32 bytes")
        if len(label) > LABEL_CHARS_MAX or not label.isprintable():
            raise Misuse(f"a key's label has at most {LABEL_CHARS_MAX} printable characters")
        uid = self._session.new_uid("key")
        self._session.run(
            insert(t.keys).values(
                uid=uid,
                account_uid=account_uid,
                digest=digest,
                label=label,
                created_at=self._session.now,
                expires_at=expires_at,
                blocked=False,
            )
        )
        key = self.get(uid)
        if key is None:
            raise NotFound("the account does not exist")
        return key

    def expire(self, uid: str, at: float) -> None:
        """Let the key end at `at`, or when it would have ended, whichever is first."""
        self._session.bump("principals")
        later = t.keys.c.expires_at.is_(None) | (t.keys.c.expires_at > at)
        self._session.run(update(t.keys).where((t.keys.c.uid == uid) & later).values(expires_at=at))

    def set_blocked(self, uid: str, blocked: bool) -> None:
        self._session.bump("principals")
        self._session.run(update(t.keys).where(t.keys.c.uid == uid).values(blocked=blocked))

    def delete(self, uid: str) -> None:
        self._session.bump("principals")
        self._session.run(delete(t.keys).where(t.keys.c.uid == uid))

    def record(self, digest: bytes) -> KeyRecord | None:
        """What the key of this digest stands for; blocked with its account or organisation."""
        query = (
            select(t.keys.c.account_uid, t.keys.c.expires_at, t.keys.c.blocked, t.orgs.c.blocked)
            .join(t.accounts, t.accounts.c.uid == t.keys.c.account_uid)
            .join(t.orgs, t.orgs.c.uid == t.accounts.c.org_uid)
            .where(t.keys.c.digest == digest)
        )
        row = self._session.first(query)
        account = SqlAccounts(self._session).by_uid(row[0]) if row else None
        if row is None or account is None:
            return None
        return KeyRecord(account.principal, row[1], bool(row[2] or row[3] or account.blocked))


def _shown() -> Select[tuple[str, str, str, str, str, float, float | None, bool]]:
    """The columns of `ApiKey`, in its order."""
    return (
        select(
            t.keys.c.uid,
            t.accounts.c.org_uid,
            t.keys.c.account_uid,
            t.accounts.c.name,
            t.keys.c.label,
            t.keys.c.created_at,
            t.keys.c.expires_at,
            t.keys.c.blocked,
        )
        .join(t.accounts, t.accounts.c.uid == t.keys.c.account_uid)
        .order_by(t.keys.c.uid)
    )
