"""Who may administer what, and the form of API keys.

Default deny. For everyone but an operator a forbid wins over any role:

    operator          everything
    any other         own organisation only, and what a forbid below leaves of:
    org_admin         accounts, groups, keys, roles, rules, documents, epochs, revocations
    publisher         documents of the organisation, for audiences within it
    public_publisher  with publisher or org_admin: also documents for `public`
    member            own keys, documents it is in the audience of, receipts of its own acts,
                      cached contents (documents that end) for itself alone

Roles `operator` and `public_publisher` are the operator's to give; and what could take over an
account that holds one (a key for it, say) is the operator's to do.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from enum import StrEnum

from scopekv.core.policy import Document, may_read
from scopekv.core.scopes import Audience, AudienceKind, Principal
from scopekv.errors import Misuse

KEY_PREFIX = "sk-scopekv-"
KEY_RANDOM_BYTES = 32


class Role(StrEnum):
    OPERATOR = "operator"
    ORG_ADMIN = "org_admin"
    PUBLISHER = "publisher"
    PUBLIC_PUBLISHER = "public_publisher"
    MEMBER = "member"


class Action(StrEnum):
    ORG_CREATE = "org.create"
    ORG_SHOW = "org.show"
    ORG_BLOCK = "org.block"
    ORG_UNBLOCK = "org.unblock"
    ORG_DELETE = "org.delete"
    ACCOUNT_CREATE = "account.create"
    ACCOUNT_SHOW = "account.show"
    ACCOUNT_BLOCK = "account.block"
    ACCOUNT_UNBLOCK = "account.unblock"
    ACCOUNT_DELETE = "account.delete"
    ACCOUNT_LINK = "account.link"
    GROUP_CREATE = "group.create"
    GROUP_SHOW = "group.show"
    GROUP_DELETE = "group.delete"
    GROUP_ADD = "group.add"
    GROUP_REMOVE = "group.remove"
    ROLE_GRANT = "role.grant"
    ROLE_REVOKE = "role.revoke"
    KEY_CREATE = "key.create"
    KEY_SHOW = "key.show"
    KEY_ROTATE = "key.rotate"
    KEY_BLOCK = "key.block"
    KEY_UNBLOCK = "key.unblock"
    KEY_DELETE = "key.delete"
    DOCUMENT_PUBLISH = "document.publish"
    DOCUMENT_SHOW = "document.show"
    DOCUMENT_READ = "document.read"
    DOCUMENT_REVISE = "document.revise"
    DOCUMENT_AUDIENCE = "document.audience"
    DOCUMENT_WITHDRAW = "document.withdraw"
    CACHED_CONTENT_CREATE = "cached_content.create"
    CACHED_CONTENT_SHOW = "cached_content.show"
    CACHED_CONTENT_EXTEND = "cached_content.extend"
    CACHED_CONTENT_DELETE = "cached_content.delete"
    CACHED_CONTENT_EXPIRE = "cached_content.expire"
    RULES_SHOW = "rules.show"
    RULES_SET = "rules.set"
    EPOCH_SHOW = "epoch.show"
    EPOCH_BUMP = "epoch.bump"
    SCOPE_REVOKE = "scope.revoke"
    RECEIPT_SHOW = "receipt.show"
    RECEIPT_CLOSE = "receipt.close"
    AUDIT_SHOW = "audit.show"


class AdminReason(StrEnum):
    """Why an administrative act was allowed or denied. For the audit log, never for a client."""

    OPERATOR = "operator"  # allowed: an operator may
    ORG_ADMIN = "org_admin"  # allowed: within the own organisation
    PUBLISHER = "publisher"  # allowed: a document within the right to publish
    IN_AUDIENCE = "in_audience"  # allowed: it is in the audience of the document
    OWN = "own"  # allowed: its own key, receipt or cached content
    MEMBER = "member"  # allowed: every member may see it
    DENIED_OTHER_ORG = "denied_other_org"  # belongs to another organisation
    DENIED_OPERATOR_ONLY = "denied_operator_only"  # only operators may
    DENIED_RESERVED_ROLE = "denied_reserved_role"  # this role is not for this caller to give
    DENIED_PRIVILEGED_ACCOUNT = "denied_privileged_account"  # its roles are above the caller
    DENIED_PUBLIC_AUDIENCE = "denied_public_audience"  # publishing to everybody takes more rights
    DENIED_OTHER_AUDIENCE = "denied_other_audience"  # an audience outside the own organisation
    DENIED_NO_ROLE = "denied_no_role"  # no role of the caller allows it
    DENIED_PRINCIPAL_GONE = "denied_principal_gone"  # the caller was deleted meanwhile


@dataclass(frozen=True, slots=True)
class Resource:
    """What an act is on. Every field left out makes fewer acts allowed, never more.

    `org_uid`: the owning organisation, "" for the deployment itself. `account`: the account whose
    key, role or state it is, or whose act a receipt is of. `role`: the one to give or take.
    `audiences`: those a document has and is to have. `document`: the one to read.
    """

    org_uid: str
    account: Principal | None = None
    role: Role | None = None
    audiences: tuple[Audience, ...] = ()
    document: Document | None = None


@dataclass(frozen=True, slots=True)
class Permission:
    """The answer and its reason."""

    allowed: bool
    reason: AdminReason


OPERATOR_ONLY = frozenset(
    {
        Action.ORG_CREATE,
        Action.ORG_BLOCK,
        Action.ORG_UNBLOCK,
        Action.ORG_DELETE,
        Action.CACHED_CONTENT_EXPIRE,
        Action.RECEIPT_CLOSE,
        Action.AUDIT_SHOW,
    }
)
RESERVED_ROLES = frozenset({Role.OPERATOR, Role.PUBLIC_PUBLISHER})
READS = frozenset({Action.DOCUMENT_SHOW, Action.DOCUMENT_READ})
PUBLISHES = frozenset(
    {
        Action.DOCUMENT_PUBLISH,
        Action.DOCUMENT_REVISE,
        Action.DOCUMENT_AUDIENCE,
        Action.DOCUMENT_WITHDRAW,
        Action.CACHED_CONTENT_CREATE,
        Action.CACHED_CONTENT_EXTEND,
    }
)
ROLE_ACTS = frozenset({Action.ROLE_GRANT, Action.ROLE_REVOKE})
ON_ACCOUNTS = ROLE_ACTS | {
    Action.ACCOUNT_BLOCK,
    Action.ACCOUNT_UNBLOCK,
    Action.ACCOUNT_DELETE,
    Action.ACCOUNT_LINK,
    Action.KEY_CREATE,
    Action.KEY_ROTATE,
    Action.KEY_BLOCK,
    Action.KEY_UNBLOCK,
    Action.KEY_DELETE,
}
OF_OWN = frozenset(
    {
        Action.KEY_CREATE,
        Action.KEY_SHOW,
        Action.KEY_ROTATE,
        Action.KEY_DELETE,
        Action.CACHED_CONTENT_CREATE,
        Action.CACHED_CONTENT_SHOW,
        Action.CACHED_CONTENT_EXTEND,
        Action.CACHED_CONTENT_DELETE,
        Action.RECEIPT_SHOW,
    }
)
OF_MEMBERS = frozenset({Action.ORG_SHOW, Action.RULES_SHOW})


def may(principal: Principal, action: Action, resource: Resource) -> Permission:
    """Whether `principal` may do `action` on `resource`, and why."""
    if Role.OPERATOR in principal.roles:
        return Permission(True, AdminReason.OPERATOR)
    if action in READS and resource.document and may_read(principal, resource.document)[0]:
        return Permission(True, AdminReason.IN_AUDIENCE)
    forbidden = _forbid(principal, action, resource)
    if forbidden:
        return Permission(False, forbidden)
    permitted = _permit(principal, action, resource)
    if permitted:
        return Permission(True, permitted)
    return Permission(False, AdminReason.DENIED_NO_ROLE)


def _forbid(principal: Principal, action: Action, resource: Resource) -> AdminReason | None:
    if action in OPERATOR_ONLY:
        return AdminReason.DENIED_OPERATOR_ONLY
    if not resource.org_uid or resource.org_uid != principal.org_uid:
        return AdminReason.DENIED_OTHER_ORG
    if action in ROLE_ACTS and (resource.role is None or resource.role in RESERVED_ROLES):
        return AdminReason.DENIED_RESERVED_ROLE
    if action in ON_ACCOUNTS:
        account = resource.account
        if account is None or account.org_uid != principal.org_uid:
            return AdminReason.DENIED_OTHER_ORG
        if account.uid != principal.uid and account.roles & RESERVED_ROLES:
            return AdminReason.DENIED_PRIVILEGED_ACCOUNT
    if action in PUBLISHES:
        return _forbid_audience(principal, resource.audiences)
    return None


def _forbid_audience(principal: Principal, audiences: tuple[Audience, ...]) -> AdminReason | None:
    """Every audience a document has and is to have must be within the caller's right."""
    if not audiences:
        return AdminReason.DENIED_OTHER_AUDIENCE
    for audience in audiences:
        if audience.kind is AudienceKind.PUBLIC:
            if Role.PUBLIC_PUBLISHER not in principal.roles:
                return AdminReason.DENIED_PUBLIC_AUDIENCE
        elif audience.path[0] != principal.org:
            return AdminReason.DENIED_OTHER_AUDIENCE
    return None


def _permit(principal: Principal, action: Action, resource: Resource) -> AdminReason | None:
    if Role.ORG_ADMIN in principal.roles:
        return AdminReason.ORG_ADMIN
    if Role.PUBLISHER in principal.roles and action in PUBLISHES | {Action.DOCUMENT_SHOW}:
        return AdminReason.PUBLISHER
    if Role.MEMBER not in principal.roles:
        return None
    own = resource.account is not None and resource.account.uid == principal.uid
    if action in PUBLISHES:
        mine = Audience(AudienceKind.USER, (principal.org, principal.name))
        own = own and all(audience == mine for audience in resource.audiences)
    if own and action in OF_OWN:
        return AdminReason.OWN
    if action in OF_MEMBERS:
        return AdminReason.MEMBER
    return None


def api_key(random: bytes) -> str:
    """Return the API key made of 32 random bytes: `sk-scopekv-` and 43 URL-safe characters."""
    if len(random) != KEY_RANDOM_BYTES:
        raise Misuse(f"an API key is made of {KEY_RANDOM_BYTES} random bytes")
    return KEY_PREFIX + base64.urlsafe_b64encode(random).rstrip(b"=").decode("ascii")


def api_key_digest(key: str) -> bytes:
    """The SHA-256 under which the registry knows a key. Any text has one.

    A key holds 256 random bits, so a slow hash would add nothing: docs/decisions/0004-registry.md.
    """
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
