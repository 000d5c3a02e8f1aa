"""The audit's own organisations, accounts, keys and documents: made, changed, and all removed.

Everything is named `audit-...`. Whatever happens in between, what was made is removed at the end;
what a killed audit left behind is shown by `scopekv admin org list`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from scopekv.audit.isolation.matrix import GROUP
from scopekv.audit.isolation.target import Forge, Member, Seat
from scopekv.compose import World
from scopekv.core.scopes import Scope, ScopeKind
from scopekv.errors import ScopeKVError
from scopekv.gateway.administration import LOCAL_OPERATOR, Administration
from scopekv.gateway.administration.views import OrgView
from scopekv.ports import Registry

PREFIX = "audit-"
_CREW = frozenset({GROUP})


def members_of(run: str) -> tuple[Member, ...]:
    """Who plays: of one organisation alice and ann of the group, amos, and an application; of
    another bob and an application. `run`: what sets these names apart from another audit's."""
    home, away = f"{PREFIX}{run}-home", f"{PREFIX}{run}-away"
    return (
        Member(home, "alice", _CREW),
        Member(home, "ann", _CREW),
        Member(home, "amos"),
        Member(home, "desk", service=True),
        Member(away, "bob"),
        Member(away, "desk", service=True),
    )


class AuditRegistrar:
    """A `Registrar` over the registry itself, as its operator. Counts at once in every gateway."""

    def __init__(self, registry: Registry, run: str) -> None:
        self._admin = Administration(registry)
        self._run = run
        self._documents: list[str] = []
        self._orgs: list[str] = []
        self.members = members_of(run)
        self.keys: dict[Seat, str] = {}

    def make(self) -> None:
        """Make the principals. Raises `Conflict` where an audit of the same name left some."""
        for member in self.members:
            if member.org not in self._orgs:
                self._admin.orgs.create(LOCAL_OPERATOR, member.org)
                self._orgs.append(member.org)
            self.keys[member.seat] = self._account(*member.seat, service=member.service)
        home = self.members[0].org
        self._admin.groups.create(LOCAL_OPERATOR, home, GROUP)
        for member in self.members:
            if GROUP in member.groups:
                self.set_member(home, GROUP, member.name, inside=True)

    def remove(self) -> list[str]:
        """Remove everything that was made; return what could not be, in words."""
        left: list[str] = []
        for ref in self._documents:
            with _noted(left, f"document {ref}"):
                self._admin.documents.withdraw(LOCAL_OPERATOR, ref)
        for org in self._orgs:
            with _noted(left, f"organisation {org}"):
                self._admin.orgs.delete(LOCAL_OPERATOR, org)
        return left

    def publish(self, name: str, audience: str, text: str) -> str:
        name = f"{PREFIX}{self._run}-{name}"
        made = self._admin.documents.publish(
            LOCAL_OPERATOR,
            name=name,
            audience=audience,
            text=text,
            org=None,
        )
        self._documents.append(made.id)
        return made.id

    def revise(self, ref: str, text: str) -> None:
        self._admin.documents.revise(LOCAL_OPERATOR, ref, text)

    def set_audience(self, ref: str, audience: str) -> None:
        self._admin.documents.set_audience(LOCAL_OPERATOR, ref, audience)

    def withdraw(self, ref: str) -> None:
        self._admin.documents.withdraw(LOCAL_OPERATOR, ref)
        self._documents.remove(ref)

    def revoke_document(self, ref: str) -> None:
        self._admin.revocations.document(LOCAL_OPERATOR, ref)

    def revoke_user(self, org: str, name: str) -> None:
        self._admin.revocations.user(LOCAL_OPERATOR, org, name)

    def revoke_session(self, org: str, name: str, session: str) -> None:
        self._admin.revocations.session(LOCAL_OPERATOR, org, name, session)

    def set_member(self, org: str, group: str, name: str, *, inside: bool) -> None:
        self._admin.groups.set_member(LOCAL_OPERATOR, org, group, name, inside=inside)

    def recreate(self, org: str, name: str) -> str:
        self._admin.accounts.delete(LOCAL_OPERATOR, org, name, service=False)
        return self._account(org, name, service=False)

    def user_scope(self, org: str, name: str) -> Scope:
        """The scope of an account's private text."""
        home: OrgView = self._admin.orgs.show(LOCAL_OPERATOR, org)
        account = self._admin.accounts.show(LOCAL_OPERATOR, org, name, service=False)
        return Scope(ScopeKind.USER, (home.uid, account.uid))

    def _account(self, org: str, name: str, *, service: bool) -> str:
        self._admin.accounts.create(LOCAL_OPERATOR, org, name, service=service)
        made = self._admin.keys.create(LOCAL_OPERATOR, org, name, label="audit", expires_at=None)
        return made.secret


@contextlib.contextmanager
def registered(registry: Registry, run: str) -> Iterator[AuditRegistrar]:
    """A registrar with its principals, for as long as the block runs.

    Raises `ScopeKVError` at the end, where something could not be removed: it says what.
    """
    registrar = AuditRegistrar(registry, run)
    left: list[str] = []
    try:
        registrar.make()
        yield registrar
    finally:
        left = registrar.remove()
    if left:
        raise ScopeKVError(f"the audit could not remove what it had made: {'; '.join(left)}")


def forge_of(world: World, registrar: AuditRegistrar, instance_group: str) -> Forge:
    """The deployment's own secrets, for tickets of which one thing alone is wrong."""
    signer = world.signer
    return Forge(
        signer.key_id,
        signer.sign,
        world.scope_secret,
        instance_group,
        registrar.user_scope,
        world.instance_secret,
    )


@contextlib.contextmanager
def _noted(left: list[str], what: str) -> Iterator[None]:
    try:
        yield
    except ScopeKVError as error:
        left.append(f"{what} ({error})")
