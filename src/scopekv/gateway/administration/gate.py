"""The way every administrative act goes: look the caller up, decide, do, write it down.

An act and its audit entry commit together. A denied or failed act leaves an entry alone. The
caller is looked up anew inside the transaction, so no right outlives its removal (I14). What a
caller may not know of is `NotFound`, word for word as if it did not exist (L10).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from scopekv.core.administration import (
    KEY_PREFIX,
    Action,
    AdminReason,
    Permission,
    Resource,
    Role,
    may,
)
from scopekv.core.scopes import Principal, check_name
from scopekv.errors import Conflict, Misuse, NotFound, Refused, ScopeDenied, TooLarge
from scopekv.ports import Account, ApiKey, DocumentRecord, Org, Registry, RegistryTransaction

# Whoever can open the registry's file is its operator: the command line acts as this one.
LOCAL_OPERATOR = Principal(
    org="", name="local", org_uid="", uid="local", roles=frozenset({Role.OPERATOR.value})
)

_DENIALS = {
    AdminReason.DENIED_OPERATOR_ONLY: "this needs the role operator",
    AdminReason.DENIED_OTHER_ORG: "this is outside your organisation",
    AdminReason.DENIED_RESERVED_ROLE: "the roles operator and public_publisher are an operator's "
    "to give and take",
    AdminReason.DENIED_PRIVILEGED_ACCOUNT: "this account holds a role that only an operator may "
    "give, so only an operator may change it",
    AdminReason.DENIED_PUBLIC_AUDIENCE: "documents for `public` need the role public_publisher; "
    "an operator can grant it",
    AdminReason.DENIED_OTHER_AUDIENCE: "the audience must lie within your own organisation",
    AdminReason.DENIED_NO_ROLE: "none of your roles allows this; ask an administrator of your "
    "organisation",
    AdminReason.DENIED_PRINCIPAL_GONE: "your account or organisation is blocked or deleted",
}
_FAILURES: dict[type[Exception], str] = {
    NotFound: "not_found",
    Conflict: "conflict",
    TooLarge: "too_large",
}


class Act:
    """One act under way: its transaction, its caller, and what was decided."""

    def __init__(
        self, transaction: RegistryTransaction, action: Action, caller: Principal, resource: str
    ) -> None:
        self.tx = transaction
        self.resource = resource  # as the log names it; an act may add the id it learns
        self.caller = caller
        self._action = action
        self.allowed: AdminReason | None = None
        self.denied: AdminReason | None = None

    @property
    def operator(self) -> bool:
        return Role.OPERATOR in self.caller.roles

    def require(self, resource: Resource) -> None:
        """Go on only if the caller may. Raises `ScopeDenied`."""
        permission = may(self.caller, self._action, resource)
        if not permission.allowed:
            self.deny(permission.reason)
        self.allowed = permission.reason

    def deny(self, reason: AdminReason) -> None:
        self.denied = reason
        raise ScopeDenied(f"not permitted: {_DENIALS[reason]}")

    def org(self, name: str) -> Org:
        """The caller's own organisation, or any for an operator; else as if it were not there."""
        org = self.tx.orgs.get(name)
        if not self.operator and name != self.caller.org:
            self.denied = AdminReason.DENIED_OTHER_ORG
        elif org is not None:
            return org
        raise NotFound(f"organisation {shown(name)} does not exist; list them to see yours")

    def account(self, org: Org, name: str, service: bool | None = None) -> Account:
        """An account of `org`; of the kind asked for, unless that is None.

        Raises `ScopeDenied` before looking, where the caller may not know the accounts there are.
        """
        permission = may(self.caller, Action.ACCOUNT_SHOW, Resource(org.uid))
        if not permission.allowed:
            self.deny(permission.reason)
        account = self.tx.accounts.get(org.uid, name)
        if account is None or service not in (None, account.principal.service):
            kind = "account" if service is None else "service account" if service else "user"
            raise NotFound(f"{kind} {shown(name)} does not exist in organisation {org.name!r}")
        return account

    def key(self, uid: str) -> tuple[ApiKey, Account]:
        """A key that the caller may see, and its owner."""
        key = self.tx.keys.get(uid)
        owner = self.tx.accounts.by_uid(key.account_uid) if key else None
        if key and owner:
            seen = may(self.caller, Action.KEY_SHOW, Resource(key.org_uid, account=owner.principal))
            if seen.allowed:
                return key, owner
            self.denied = seen.reason
        raise NotFound(f"API key {shown(uid)} does not exist; list the keys to see their ids")

    def document(self, ref: str) -> DocumentRecord:
        """The document `ref` among those the caller may know of: an id, a name, or ORG/NAME.

        Raises `NotFound`, or `Conflict` where a bare name fits several.
        """
        if "_" in ref and (record := self.tx.documents.get(ref)):
            found = [record]
        else:
            org, _, name = ref.rpartition("/")
            found = [
                record
                for record in self.tx.documents.list()
                if record.name == name
                and not record.document.withdrawn
                and (record.org == org or not org)
            ]
        seen = [(record, self.knows(record)) for record in found]
        known = [record for record, permission in seen if permission.allowed]
        if len(known) > 1:
            choices = ", ".join(f"{r.org}/{r.name} ({r.document.uid})" for r in known[:5])
            raise Conflict(f"several documents have that name; use an id: {choices}")
        if not known:
            self.denied = seen[0][1].reason if seen else None
            raise NotFound(f"document {shown(ref)} does not exist; list the documents to see them")
        return known[0]

    def knows(self, record: DocumentRecord) -> Permission:
        """Whether the caller may know that the document exists."""
        resource = Resource(record.org_uid, document=record.document)
        return may(self.caller, Action.DOCUMENT_SHOW, resource)


class Gate:
    """Opens acts on one registry."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry

    @contextmanager
    def act(self, caller: Principal, action: Action, resource: str) -> Iterator[Act]:
        """A change: it, and its audit entry, commit on leaving. One denied or failed is noted."""
        with (
            self._noted(caller, action, resource) as open_act,
            self.registry.write() as transaction,
        ):
            act = open_act(transaction)
            yield act
            reason = _decided(act)
            transaction.audit.append(
                actor=actor_name(caller),
                action=action.value,
                resource=act.resource,
                outcome="allowed",
                reason=reason.value,
            )

    @contextmanager
    def look(self, caller: Principal, action: Action, resource: str) -> Iterator[Act]:
        """A read: noted only where it is denied or fails."""
        with (
            self._noted(caller, action, resource) as open_act,
            self.registry.read() as transaction,
        ):
            act = open_act(transaction)
            yield act
            _decided(act)

    @contextmanager
    def _noted(self, caller: Principal, action: Action, resource: str) -> Iterator[_Opener]:
        opener = _Opener(caller, action, resource)
        try:
            yield opener
        except (Misuse, Refused) as error:
            denied = opener.act.denied if opener.act else None
            self.registry.audit(
                actor=actor_name(caller),
                action=action.value,
                resource=resource,
                outcome="denied" if denied else "failed",
                reason=denied.value if denied else _FAILURES.get(type(error), "misuse"),
            )
            raise


class _Opener:
    """Makes the act once there is a transaction, and keeps it for the note."""

    def __init__(self, caller: Principal, action: Action, resource: str) -> None:
        self._caller = caller
        self._action = action
        self._resource = resource
        self.act: Act | None = None

    def __call__(self, transaction: RegistryTransaction) -> Act:
        self.act = Act(transaction, self._action, self._caller, self._resource)
        if self._caller != LOCAL_OPERATOR:
            account = transaction.accounts.by_uid(self._caller.uid)
            org = transaction.orgs.get(account.principal.org) if account else None
            if account is None or account.blocked or org is None or org.blocked:
                self.act.deny(AdminReason.DENIED_PRINCIPAL_GONE)
            else:
                self.act.caller = account.principal.under(self._caller.grant)
        return self.act


def _decided(act: Act) -> AdminReason:
    """Fail closed on an act that forgot to ask."""
    if act.allowed is None:
        raise ScopeDenied("not permitted: no permission was checked")
    return act.allowed


def actor_name(principal: Principal) -> str:
    """How the log names a caller: `acme/alice (usr_...)`, or `local`."""
    if principal == LOCAL_OPERATOR:
        return "local (operator at the command line)"
    return f"{principal.org}/{principal.name} ({principal.uid})"


def name_of(text: str, what: str) -> str:
    """Check a new name. One that looks like a key is refused without repeating it."""
    if KEY_PREFIX in text:
        raise Misuse(f"the {what}'s name looks like an API key; it was not kept")
    return check_name(text, what)


def shown(text: str) -> str:
    """What a caller wrote, as a message may repeat it."""
    return "of that name" if KEY_PREFIX in text else repr(text[:80])
