"""Administration of organisations, accounts, roles and groups.

Every method takes the authenticated caller first, raises `ScopeDenied` or `NotFound` where it may
not, `Conflict` and `Misuse` where the state or a value forbids, and leaves an audit entry.
"""

from __future__ import annotations

from dataclasses import replace

from scopekv.core.administration import Action, Resource, Role
from scopekv.core.identity import identity_key, subject_of
from scopekv.core.scopes import Principal
from scopekv.errors import Misuse, NotFound
from scopekv.gateway.administration import views
from scopekv.gateway.administration.ending import Ending
from scopekv.gateway.administration.gate import Gate, name_of, shown
from scopekv.ports import Account


class OrgAdministration:
    """Organisations."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def create(self, caller: Principal, name: str) -> views.OrgView:
        name_of(name, "organisation")
        with self._gate.act(caller, Action.ORG_CREATE, f"org:{name}") as act:
            act.require(Resource(""))
            return views.org(act.tx.orgs.create(name))

    def list(self, caller: Principal, *, after: str, limit: int) -> views.Page:
        """All of them for an operator; for others their own."""
        with self._gate.look(caller, Action.ORG_SHOW, "org:*") as act:
            act.require(Resource(act.caller.org_uid))
            if act.operator:
                items = list(act.tx.orgs.list(after, limit + 1))
            else:
                items = [act.org(act.caller.org)] if act.caller.org > after else []
            return views.page(items, limit, views.org, lambda item: item.name)

    def show(self, caller: Principal, name: str) -> views.OrgView:
        with self._gate.look(caller, Action.ORG_SHOW, f"org:{name}") as act:
            org = act.org(name)
            act.require(Resource(org.uid))
            return views.org(org)

    def set_blocked(self, caller: Principal, name: str, blocked: bool) -> views.OrgView:
        """Block it, and with it every key of its accounts; or unblock it."""
        action = Action.ORG_BLOCK if blocked else Action.ORG_UNBLOCK
        with self._gate.act(caller, action, f"org:{name}") as act:
            org = act.org(name)
            act.require(Resource(org.uid))
            act.tx.orgs.set_blocked(org.uid, blocked)
            return views.org(act.org(name))

    def delete(self, caller: Principal, name: str) -> views.Deleted:
        """Remove it with its accounts and keys. `Conflict` while it has documents."""
        with self._gate.act(caller, Action.ORG_DELETE, f"org:{name}") as act:
            org = act.org(name)
            act.require(Resource(org.uid))
            ending = Ending(act)
            ending.end_org(org)
            ending.end_cached(act.tx.cached_contents.of_org(org.uid))
            act.tx.orgs.delete(org.uid)
            made = ending.receipt(org.uid, f"org:{name}")
            return views.Deleted(deleted=org.uid, receipt=made.uid)


class AccountAdministration:
    """Users and service accounts, and the roles of both."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def me(self, caller: Principal) -> views.AccountView:
        """The caller as it counts now: the registry's account, and what its token adds."""
        with self._gate.look(caller, Action.ORG_SHOW, "me") as act:
            act.require(Resource(act.caller.org_uid))
            found = act.tx.accounts.by_uid(act.caller.uid)
            account = found or Account(act.caller, False, 0.0)
            return views.account(replace(account, principal=act.caller))

    def create(self, caller: Principal, org: str, name: str, *, service: bool) -> views.AccountView:
        """Make one with the role `member`."""
        name_of(name, "account")
        with self._gate.act(caller, Action.ACCOUNT_CREATE, _label(org, name, service)) as act:
            home = act.org(org)
            act.require(Resource(home.uid))
            account = act.tx.accounts.create(home.uid, name, service)
            act.tx.accounts.grant(account.principal.uid, Role.MEMBER)
            return views.account(act.account(home, name, service))

    def list(
        self, caller: Principal, org: str, *, service: bool, after: str, limit: int
    ) -> views.Page:
        with self._gate.look(caller, Action.ACCOUNT_SHOW, _label(org, "*", service)) as act:
            home = act.org(org)
            act.require(Resource(home.uid))
            items = act.tx.accounts.list(home.uid, service, after, limit + 1)
            return views.page(items, limit, views.account, lambda item: item.principal.name)

    def show(self, caller: Principal, org: str, name: str, *, service: bool) -> views.AccountView:
        with self._gate.look(caller, Action.ACCOUNT_SHOW, _label(org, name, service)) as act:
            home = act.org(org)
            act.require(Resource(home.uid))
            return views.account(act.account(home, name, service))

    def set_blocked(
        self, caller: Principal, org: str, name: str, *, service: bool, blocked: bool
    ) -> views.AccountView:
        """Block it and its keys, or unblock it."""
        action = Action.ACCOUNT_BLOCK if blocked else Action.ACCOUNT_UNBLOCK
        with self._gate.act(caller, action, _label(org, name, service)) as act:
            home = act.org(org)
            account = act.account(home, name, service).principal
            act.require(Resource(home.uid, account=account))
            act.tx.accounts.set_blocked(account.uid, blocked)
            return views.account(act.account(home, name, service))

    def delete(self, caller: Principal, org: str, name: str, *, service: bool) -> views.Deleted:
        """Remove it with its keys, and end what is kept of it. A new one of the name is another."""
        with self._gate.act(caller, Action.ACCOUNT_DELETE, _label(org, name, service)) as act:
            home = act.org(org)
            account = act.account(home, name, service).principal
            act.require(Resource(home.uid, account=account))
            ending = Ending(act)
            ending.end_cached(act.tx.cached_contents.of_account(account.uid))
            act.tx.accounts.delete(account.uid)
            ending.end_user(home.uid, account.uid)
            made = ending.receipt(home.uid, f"user:{org}/{name}")
            return views.Deleted(deleted=account.uid, receipt=made.uid)

    def link(
        self, caller: Principal, org: str, name: str, *, issuer: str, subject: str
    ) -> views.AccountView:
        """Let tokens of this issuer and subject call as this user, instead of any other before.

        Also for somebody whose account was deleted: until then their tokens are refused.
        """
        key = identity_key(issuer, subject_of(subject), org)
        label = f"{_label(org, name, False)} identity:{key.hex()[:16]}"
        with self._gate.act(caller, Action.ACCOUNT_LINK, label) as act:
            home = act.org(org)
            account = act.account(home, name, service=False)
            act.require(Resource(home.uid, account=account.principal))
            act.tx.identities.link(key, account.principal.uid)
            return views.account(account)

    def set_role(
        self, caller: Principal, org: str, name: str, role: str, *, held: bool
    ) -> views.AccountView:
        """Grant a role, or take it. `Misuse` names the roles there are."""
        action = Action.ROLE_GRANT if held else Action.ROLE_REVOKE
        wanted = _role(role)
        with self._gate.act(caller, action, f"account:{org}/{name} role:{wanted}") as act:
            home = act.org(org)
            account = act.account(home, name).principal
            act.require(Resource(home.uid, account=account, role=wanted))
            change = act.tx.accounts.grant if held else act.tx.accounts.revoke
            change(account.uid, wanted)
            return views.account(act.account(home, name))


class GroupAdministration:
    """Groups and their members."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def create(self, caller: Principal, org: str, name: str) -> views.GroupView:
        name_of(name, "group")
        with self._gate.act(caller, Action.GROUP_CREATE, f"group:{org}/{name}") as act:
            home = act.org(org)
            act.require(Resource(home.uid))
            return views.group(act.tx.groups.create(home.uid, name))

    def list(self, caller: Principal, org: str, *, after: str, limit: int) -> views.Page:
        with self._gate.look(caller, Action.GROUP_SHOW, f"group:{org}/*") as act:
            home = act.org(org)
            act.require(Resource(home.uid))
            items = act.tx.groups.list(home.uid, after, limit + 1)
            return views.page(items, limit, views.group, lambda item: item.name)

    def set_member(
        self, caller: Principal, org: str, name: str, member: str, *, inside: bool
    ) -> views.GroupView:
        """Put a user or service account of the organisation in, or take it out.

        Taking one out ends what is kept of the group's documents: see `revocation.membership`.
        """
        action = Action.GROUP_ADD if inside else Action.GROUP_REMOVE
        with self._gate.act(caller, action, f"group:{org}/{name} member:{member}") as act:
            home = act.org(org)
            act.require(Resource(home.uid))
            group = act.tx.groups.get(home.uid, name)
            if group is None:
                raise NotFound(f"group {shown(name)} does not exist in organisation {org!r}")
            account = act.account(home, member).principal.uid
            if inside:
                act.tx.groups.add(group.uid, account)
                return views.group(act.tx.groups.get(home.uid, name) or group)
            act.tx.groups.remove(group.uid, account)
            if member not in group.members:
                return views.group(group)
            ending = Ending(act)
            ending.end_audience(f"group:{org}/{name}")
            made = ending.receipt(home.uid, f"membership:{org}/{name} user:{org}/{member}")
            return views.group(act.tx.groups.get(home.uid, name) or group, made.uid)

    def delete(self, caller: Principal, org: str, name: str) -> views.Deleted:
        """Remove it. `Conflict` while it is a document's audience."""
        with self._gate.act(caller, Action.GROUP_DELETE, f"group:{org}/{name}") as act:
            home = act.org(org)
            act.require(Resource(home.uid))
            group = act.tx.groups.get(home.uid, name)
            if group is None:
                raise NotFound(f"group {shown(name)} does not exist in organisation {org!r}")
            act.tx.groups.delete(group.uid)
            return views.Deleted(deleted=group.uid)


def _label(org: str, name: str, service: bool) -> str:
    return f"{'service_account' if service else 'user'}:{org}/{name}"


def _role(text: str) -> Role:
    try:
        return Role(text)
    except ValueError as error:
        raise Misuse(f"there is no role {shown(text)}; the roles are: {', '.join(Role)}") from error
