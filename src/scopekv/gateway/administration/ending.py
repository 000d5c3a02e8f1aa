"""Ending epochs inside an act: older keys destroyed, and a receipt for what must be purged.

In the act's own transaction, so epoch, keys, receipt and audit entry commit together or not at
all. The gateway's `Revoker` finds the receipt and carries it out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from scopekv.core.chains import Link
from scopekv.core.receipts import name_owner, name_pair, owner_of
from scopekv.core.scopes import Scope, ScopeKind
from scopekv.gateway.administration.gate import Act, actor_name
from scopekv.ports import CachedContent, DocumentRecord, Org, Receipt
from scopekv.store import scope_keys

PAGE = 1000
NOBODY = "-"  # the organisation of the deployment's own documents


class Ending:
    """What one act ends. Cost: four statements for each scope, and one row for each key."""

    def __init__(self, act: Act) -> None:
        self._act = act
        self._names: dict[str, None] = {}
        self.keys_destroyed = 0

    def end(self, scope: Scope) -> None:
        """Raise the scope's epoch and destroy the keys of those before."""
        self._take(scope, scope_keys.end_epoch(self._act.tx, scope))

    def ended(self, scope: Scope) -> None:
        """Destroy the older keys of a scope whose epoch the act has raised itself."""
        self._take(scope, scope_keys.erase_ended(self._act.tx, scope))

    def end_user(self, org_uid: str, account_uid: str) -> None:
        """All scopes of one account: its own, its end users', its sessions'."""
        self.end(Scope(ScopeKind.USER, (org_uid, account_uid)))

    def end_audience(self, written: str) -> None:
        """Every document of exactly this audience: `group:acme/eng`, say."""
        for record in self._act.tx.documents.list():
            if str(record.document.audience) == written:
                self.end(record.document.scope)

    def end_org(self, org: Org) -> None:
        """The organisation, its accounts, and every document that is its own or for it."""
        self.end(Scope(ScopeKind.ORG, (org.uid,)))
        for uid in _accounts(self._act, org.uid):
            self.end_user(org.uid, uid)
        for record in self._act.tx.documents.list():
            if record.org_uid == org.uid or _is_for(record, org.name):
                self.end(record.document.scope)

    def end_cached(self, contents: Iterable[CachedContent]) -> None:
        """Withdraw and forget cached contents, as if they had never been."""
        for one in contents:
            document = one.record.document
            self._act.tx.documents.withdraw(document.uid)
            self.ended(document.scope)
            self._act.tx.cached_contents.drop(document.uid)

    def receipt(self, org_uid: str, subject: str) -> Receipt:
        """Write the receipt, pending, and name it in the audit entry.

        `subject` is names of the registry, never a client's words; `org_uid` stands first in the
        registry's row and says whose administrators may see it.
        """
        names = dict.fromkeys((*self._names, *self._unfinished()))
        made = self._act.tx.receipts.create(
            actor_name(self._act.caller), f"{org_uid or NOBODY} {subject}", list(names)
        )
        self._act.resource += f" receipt:{made.uid} keys:{self.keys_destroyed}"
        return made

    def _unfinished(self) -> Iterator[str]:
        """What earlier receipts of the same scopes wait for still.

        Success of this one says that nothing of them is read, whatever the epoch (L6).
        """
        owners = {owner_of(name) for name in self._names} - {None}
        for receipt in self._act.tx.receipts.pending():
            if not owners.isdisjoint(map(owner_of, receipt.tags)):
                yield from receipt.tags

    def _take(self, scope: Scope, ended: scope_keys.Ended) -> None:
        owner = scope.epoch_owner
        if ended.epoch > 0:
            self._names[name_owner(owner, ended.epoch - 1)] = None
        for record in ended.records:
            self._names[name_pair(Link(record.scope, record.epoch))] = None
        self.keys_destroyed += len(ended.records)


def _accounts(act: Act, org_uid: str) -> Iterator[str]:
    for service in (False, True):
        after = ""
        while page := act.tx.accounts.list(org_uid, service, after, PAGE):
            yield from (account.principal.uid for account in page)
            after = page[-1].principal.name


def _is_for(record: DocumentRecord, org: str) -> bool:
    audience = record.document.audience
    return bool(audience.path) and audience.path[0] == org
