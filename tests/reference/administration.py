"""`core.administration.may` once more, as obvious as it can be: row by row, what is allowed."""

from __future__ import annotations

from scopekv.core.administration import Action, Resource
from scopekv.core.policy import may_read
from scopekv.core.scopes import Principal

RESERVED = {"operator", "public_publisher"}
PUBLISHING = {"publisher", "org_admin"}


def allowed(who: Principal, action: Action, what: Resource) -> bool:
    kind, _, verb = action.value.partition(".")
    own = what.account is not None and what.account.uid == who.uid
    if "operator" in who.roles:
        return True
    if kind == "document" and verb in ("show", "read") and what.document:
        readable, _ = may_read(who, what.document)
        if readable:
            return True
    if what.org_uid == "" or what.org_uid != who.org_uid:
        return False
    if (
        kind == "audit"
        or action in ("receipt.close", "cached_content.expire")
        or (kind == "org" and verb != "show")
    ):
        return False
    if action == "key.create" or (
        kind in ("account", "key", "role") and verb not in ("show", "create")
    ):
        if what.account is None or what.account.org_uid != who.org_uid:
            return False
        if not own and set(what.account.roles) & RESERVED:
            return False
    if kind == "role" and (what.role is None or what.role.value in RESERVED):
        return False
    cached = action in ("cached_content.create", "cached_content.extend")
    if cached or (kind == "document" and verb not in ("show", "read")):
        return publishes(who, what, for_itself=own and cached)
    if "org_admin" in who.roles or ("publisher" in who.roles and action == "document.show"):
        return True
    of_own = own and action in (
        "key.create",
        "key.show",
        "key.rotate",
        "key.delete",
        "cached_content.show",
        "cached_content.delete",
        "receipt.show",
    )
    return "member" in who.roles and (of_own or action in ("org.show", "rules.show"))


def publishes(who: Principal, what: Resource, *, for_itself: bool) -> bool:
    """Of its own organisation; a member `for_itself`, to its own audience alone."""
    reach = {audience.path[:1] for audience in what.audiences}  # () is public
    mine = {(who.org,), ()} if "public_publisher" in who.roles else {(who.org,)}
    own = {str(audience) for audience in what.audiences} == {f"user:{who.org}/{who.name}"}
    member = for_itself and own and "member" in who.roles
    return bool(reach) and reach <= mine and (member or bool(PUBLISHING & who.roles))
