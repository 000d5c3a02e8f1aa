"""The append-only audit log.

Each digest covers its entry and the digest before it, so a changed, removed or inserted entry
breaks the chain from there on; the head in `scopekv_state` shows a log cut short. Whoever may
rewrite the whole database may rewrite the chain: note the head elsewhere to see that, too.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

from sqlalchemy import insert, select, update

from scopekv.adapters.registry import tables as t
from scopekv.adapters.registry.session import Session
from scopekv.core.encoding import encode
from scopekv.errors import Corrupt
from scopekv.ports import AuditEntry, AuditHead

FIELD_CHARS_MAX = 512
_SECRET = re.compile(r"sk-scopekv-[A-Za-z0-9_-]*")
_BATCH = 1000


def entry_digest(before: bytes, seq: int, at_ms: int, fields: Sequence[str]) -> bytes:
    """SHA-256 over the digest before, the number, the time and the five fields."""
    return hashlib.sha256(encode("scopekv/audit/1", before, seq, at_ms, list(fields))).digest()


class SqlAuditLog:
    """Entries of the log, in the transaction of the session."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def append(self, *, actor: str, action: str, resource: str, outcome: str, reason: str) -> None:
        """Add one entry. What looks like an API key is cut out; a field holds 512 characters."""
        self._session.must_write()
        fields = [_clean(text) for text in (actor, action, resource, outcome, reason)]
        state = self._session.one(select(t.state.c.audit_seq, t.state.c.audit_digest))
        seq, at_ms = state.audit_seq + 1, int(self._session.now * 1000)
        digest = entry_digest(state.audit_digest, seq, at_ms, fields)
        names = ("actor", "action", "resource", "outcome", "reason")
        self._session.run(
            insert(t.audit).values(
                seq=seq, at_ms=at_ms, digest=digest, **dict(zip(names, fields, strict=True))
            )
        )
        self._session.run(update(t.state).values(audit_seq=seq, audit_digest=digest))

    def list(self, after: int, limit: int) -> Sequence[AuditEntry]:
        query = select(t.audit).where(t.audit.c.seq > after).order_by(t.audit.c.seq).limit(limit)
        return [AuditEntry(*row) for row in self._session.rows(query)]

    def last(self) -> int:
        return int(self._session.one(select(t.state.c.audit_seq)).audit_seq)

    def verify(self) -> AuditHead:
        """Recompute the chain. Cost: about 10 microseconds an entry."""
        before, seq = b"", 0
        while entries := self.list(seq, _BATCH):
            for entry in entries:
                fields = (entry.actor, entry.action, entry.resource, entry.outcome, entry.reason)
                expected = entry_digest(before, seq + 1, entry.at_ms, fields)
                if entry.seq != seq + 1 or entry.digest != expected:
                    raise Corrupt(f"the audit log does not hold from entry {seq + 1} on")
                before, seq = entry.digest, entry.seq
        state = self._session.one(select(t.state.c.audit_seq, t.state.c.audit_digest))
        if (state.audit_seq, state.audit_digest) != (seq, before):
            raise Corrupt(f"the audit log ends at entry {seq}, and {state.audit_seq} were written")
        return AuditHead(seq, before)


def _clean(text: str) -> str:
    # PostgreSQL text takes neither NUL nor lone surrogates; both databases hold the same.
    text = text.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode("utf-8")
    return _SECRET.sub("sk-scopekv-(cut)", text)[:FIELD_CHARS_MAX]
