"""Revocations and their receipts (L6).

A revocation commits first: epochs up, older sealing keys destroyed (what they sealed is unreadable
from then on), receipt and audit entry written. Then the gateway purges; the receipt says how far.
Why a session takes all of its user's scopes along: docs/decisions/0008-revocation.md.
"""

from __future__ import annotations

from collections.abc import Callable

from scopekv import ports
from scopekv.core import receipts as core
from scopekv.core.administration import Action, Resource, may
from scopekv.core.receipts import WHOLE, Line, LineState, ReceiptState
from scopekv.core.scopes import Narrowing, Principal
from scopekv.errors import Misuse, NotFound
from scopekv.gateway.administration import views
from scopekv.gateway.administration.ending import NOBODY, Ending
from scopekv.gateway.administration.gate import Act, Gate, actor_name, shown

REASON_CHARS_MAX = 200


class RevocationAdministration:
    """`scopekv admin revoke`. Each answers with a receipt that is pending still."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def user(
        self, caller: Principal, org: str, name: str, *, erase: bool = False
    ) -> views.RevocationView:
        """End all scopes of a user or service account: its own, its end users', its sessions'.

        `erase`: those of the documents that only this account may read as well, and its cached
        contents with their texts.
        """
        label = f"user:{org}/{name}" + (" erase" if erase else "")
        with self._gate.act(caller, Action.SCOPE_REVOKE, label) as act:
            home, uid = self._account(act, org, name)
            ending = Ending(act)
            ending.end_user(home, uid)
            if erase:
                ending.end_cached(act.tx.cached_contents.of_account(uid))
                ending.end_audience(f"user:{org}/{name}")
            also = " and of the documents for it alone" if erase else ""
            effect = f"everything kept of {org}/{name}, its end users and sessions{also}"
            return _revoked(ending, ending.receipt(home, label), effect)

    def session(
        self, caller: Principal, org: str, name: str, session: str, *, end_user: str = ""
    ) -> views.RevocationView:
        """End a session: with all other scopes of its account, whose epoch it shares."""
        if not Narrowing(end_user, session).session:
            raise Misuse("a session has a name: the X-ScopeKV-Session that its requests carry")
        label = f"session of user:{org}/{name}"
        with self._gate.act(caller, Action.SCOPE_REVOKE, label) as act:
            home, uid = self._account(act, org, name)
            ending = Ending(act)
            ending.end_user(home, uid)
            effect = (
                f"everything kept of {org}/{name}, its end users and sessions: a session shares "
                "its account's epoch"
            )
            return _revoked(ending, ending.receipt(home, label), effect)

    def document(self, caller: Principal, ref: str) -> views.RevocationView:
        """End what is kept of a document, which stays published."""
        with self._gate.act(caller, Action.SCOPE_REVOKE, f"document:{ref}") as act:
            record = act.document(ref)
            act.require(Resource(record.org_uid))
            ending = Ending(act)
            ending.end(record.document.scope)
            subject = f"document:{record.org}/{record.name}"
            made = ending.receipt(record.org_uid, subject)
            return _revoked(ending, made, f"everything kept of {subject}; it stays published")

    def membership(
        self, caller: Principal, org: str, group: str, name: str
    ) -> views.RevocationView:
        """Take a member out of a group and end what is kept of the group's documents."""
        label = f"membership:{org}/{group} user:{org}/{name}"
        with self._gate.act(caller, Action.GROUP_REMOVE, label) as act:
            home = act.org(org)
            act.require(Resource(home.uid))
            found = act.tx.groups.get(home.uid, group)
            if found is None:
                raise NotFound(f"group {shown(group)} does not exist in organisation {org!r}")
            act.tx.groups.remove(found.uid, act.account(home, name).principal.uid)
            ending = Ending(act)
            ending.end_audience(f"group:{org}/{group}")
            made = ending.receipt(home.uid, label)
            effect = f"{name} is out of {org}/{group}; everything kept of the group's documents"
            return _revoked(ending, made, effect)

    def org(self, caller: Principal, name: str) -> views.RevocationView:
        """End everything of an organisation: its own scope, its accounts', its documents'."""
        with self._gate.act(caller, Action.SCOPE_REVOKE, f"org:{name}") as act:
            home = act.org(name)
            act.require(Resource(home.uid))
            ending = Ending(act)
            ending.end_org(home)
            made = ending.receipt(home.uid, f"org:{name}")
            return _revoked(
                ending, made, f"everything kept of {name}, its accounts and its documents"
            )

    @staticmethod
    def _account(act: Act, org: str, name: str) -> tuple[str, str]:
        """The uids. The permission is asked before the account's name is looked up."""
        home = act.org(org)
        act.require(Resource(home.uid))
        return home.uid, act.account(home, name).principal.uid


class ReceiptAdministration:
    """`scopekv admin receipts`: an administrator's own organisation's, an operator's all."""

    def __init__(self, gate: Gate, clock: Callable[[], float]) -> None:
        self._gate = gate
        self._clock = clock

    def list(self, caller: Principal, *, after: str, limit: int) -> views.Page:
        """Newest first, after the receipt `after`."""
        with self._gate.look(caller, Action.RECEIPT_SHOW, "receipt:*") as act:
            act.require(Resource(act.caller.org_uid))
            found: list[ports.Receipt] = []
            if after:
                self._one(act, after)
            while len(found) <= limit and (page := act.tx.receipts.list(after, limit + 1)):
                found += [one for one in page if act.operator or _org(one) == act.caller.org_uid]
                after = page[-1].uid
            return views.page(found[: limit + 1], limit, views.receipt, lambda one: one.uid)

    def show(self, caller: Principal, uid: str) -> views.ReceiptView:
        with self._gate.look(caller, Action.RECEIPT_SHOW, f"receipt:{uid}") as act:
            return views.receipt(self._one(act, uid))

    def close(self, caller: Principal, uid: str, reason: str) -> views.ReceiptView:
        """Take it upon oneself that what is open cannot be read: for an operator.

        Nothing is asked again. The reason stays in the audit log.
        """
        if not 1 <= len(reason.strip()) <= REASON_CHARS_MAX:
            raise Misuse(f"closing a receipt takes a reason of 1 to {REASON_CHARS_MAX} characters")
        label = f"receipt:{uid} reason:{reason.strip()}"
        with self._gate.act(caller, Action.RECEIPT_CLOSE, label) as act:
            act.require(Resource(""))
            receipt = self._one(act, uid)
            at = self._clock()
            nobody = Line(NOBODY, WHOLE, LineState.CLOSED, 0, "", at)
            lines = core.closed(lines_of(receipt), at) or (nobody,)
            return views.receipt(act.tx.receipts.update(uid, ReceiptState.DONE, stored(lines)))

    @staticmethod
    def _one(act: Act, uid: str) -> ports.Receipt:
        """A receipt that the caller may see; else as if it were not there."""
        receipt = act.tx.receipts.get(uid)
        if receipt is not None:
            own = receipt.actor == actor_name(act.caller)
            org = act.caller.org_uid if own else _org(receipt)
            resource = Resource(org, account=act.caller if own else None)
            permission = may(act.caller, Action.RECEIPT_SHOW, resource)
            if permission.allowed:
                act.allowed = permission.reason
                return receipt
            act.denied = permission.reason
        raise NotFound(f"receipt {shown(uid)} does not exist; list them to see their ids")


def lines_of(receipt: ports.Receipt) -> core.Lines:
    """The lines of a stored receipt."""
    return tuple(
        Line(one.instance, one.tier, LineState(one.state), one.removed, one.reason, one.at)
        for one in receipt.lines
    )


def stored(lines: core.Lines) -> list[ports.ReceiptLine]:
    """The lines as the registry keeps them."""
    return [
        ports.ReceiptLine(one.instance, one.tier, one.state, one.removed, one.reason, one.at)
        for one in lines
    ]


def _org(receipt: ports.Receipt) -> str:
    """The uid of the organisation whose receipt it is; no organisation's for the deployment's."""
    return receipt.subject.partition(" ")[0]


def _revoked(ending: Ending, receipt: ports.Receipt, effect: str) -> views.RevocationView:
    return views.RevocationView(
        effect=effect, keys_destroyed=ending.keys_destroyed, receipt=views.receipt(receipt)
    )
