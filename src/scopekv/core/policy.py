"""The decision: which scope does each part of this caller's prompt get?

Default deny, and the server decides: the inputs are the authenticated principal, what the
registry says of documents and rules, and a narrowing that can only take sharing away.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from scopekv.core.reasons import ScopeReason
from scopekv.core.scopes import (
    Audience,
    AudienceKind,
    Narrowing,
    Principal,
    Scope,
    ScopeKind,
    private_scope,
)

_PERMIT = {
    AudienceKind.PUBLIC: ScopeReason.DOCUMENT_PUBLIC,
    AudienceKind.ORG: ScopeReason.DOCUMENT_ORG,
    AudienceKind.GROUP: ScopeReason.DOCUMENT_GROUP,
    AudienceKind.USER: ScopeReason.DOCUMENT_USER,
}

_NOT_NARROWED = Narrowing()


class PartRole(StrEnum):
    """Where a part of a prompt stands."""

    TOOLS = "tools"
    SYSTEM = "system"
    MESSAGES = "messages"


class Level(StrEnum):
    """How widely an organisation shares a role's text among its own."""

    ORG = "org"
    USER = "user"


@dataclass(frozen=True, slots=True)
class RoleRules:
    """An organisation's rules for text that is no published document."""

    tools: Level = Level.ORG
    system: Level = Level.ORG
    messages: Level = Level.USER

    def level(self, role: PartRole) -> Level:
        level: Level = getattr(self, role.value)
        return level


@dataclass(frozen=True, slots=True)
class Document:
    """A published document as policy sees it. Its text is elsewhere."""

    uid: str
    audience: Audience
    withdrawn: bool = False

    @property
    def scope(self) -> Scope:
        return Scope(ScopeKind.DOCUMENT, (self.uid,))


@dataclass(frozen=True, slots=True)
class Decision:
    """A scope and why. `allowed` is False where a document was not the caller's to read."""

    scope: Scope
    reason: ScopeReason
    allowed: bool = True


def may_read(principal: Principal, document: Document) -> tuple[bool, ScopeReason]:
    """Whether the principal is in the document's audience. Withdrawn documents have none."""
    if document.withdrawn:
        return False, ScopeReason.DENIED_WITHDRAWN
    audience = document.audience
    if audience.kind is AudienceKind.PUBLIC:
        allowed = True
    elif audience.path[0] != principal.org:
        allowed = False
    elif audience.kind is AudienceKind.ORG:
        allowed = True
    elif audience.kind is AudienceKind.GROUP:
        allowed = audience.path[1] in principal.groups
    else:
        allowed = audience.path[1] == principal.name
    return allowed, _PERMIT[audience.kind] if allowed else ScopeReason.DENIED_NOT_MEMBER


def decide(
    principal: Principal,
    narrowing: Narrowing,
    rules: RoleRules,
    role: PartRole,
    document: Document | None,
    *,
    private_before: bool,
) -> Decision:
    """Return the scope of one part. A denied document is the caller's own text (L10).

    `private_before`: text of the caller's narrowest scope stands before this part, so a wider
    scope than that would be wider in name only.
    """
    if document is not None:
        allowed, reason = may_read(principal, document)
        if allowed:
            return Decision(document.scope, reason)
        return Decision(private_scope(principal, narrowing), reason, allowed=False)
    if private_before:
        return Decision(private_scope(principal, narrowing), ScopeReason.AFTER_PRIVATE)
    asked_apart = role is PartRole.MESSAGES and narrowing != _NOT_NARROWED
    if rules.level(role) is Level.ORG and not asked_apart:
        return Decision(Scope(ScopeKind.ORG, (principal.org_uid,)), ScopeReason.ROLE_RULE)
    return Decision(private_scope(principal, narrowing), ScopeReason.PRIVATE_DEFAULT)
