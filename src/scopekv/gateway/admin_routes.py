"""The routes of `/admin/v1`: one line each, to the service that does the act."""

from __future__ import annotations

from scopekv.gateway.admin_accounts import ACCOUNT_ROUTES
from scopekv.gateway.admin_call import (
    Call,
    Closing,
    Named,
    NewAudience,
    NewDocument,
    NewKey,
    NewOwnKey,
    NewRules,
    NewText,
    OfDocument,
    OfMembership,
    OfOrg,
    OfSession,
    OfUser,
    Rotation,
    Route,
    Target,
)


def _org_block(call: Call, blocked: bool) -> object:
    call.nothing()
    return call.service.orgs.set_blocked(call.caller, call["org"], blocked)


def _org_delete(call: Call) -> object:
    call.nothing()
    return call.service.orgs.delete(call.caller, call["org"])


def _member(call: Call, inside: bool) -> object:
    call.nothing()
    return call.service.groups.set_member(
        call.caller, call["org"], call["group"], call["name"], inside=inside
    )


def _group_delete(call: Call) -> object:
    call.nothing()
    return call.service.groups.delete(call.caller, call["org"], call["group"])


def _keys(call: Call) -> object:
    page = call.page("owner")
    return call.service.keys.list(call.caller, call["org"], owner=call.query("owner"), **page)


def _own_keys(call: Call) -> object:
    page = call.page()
    return call.service.keys.list(call.caller, call.caller.org, owner=call.caller.name, **page)


def _key_create(call: Call) -> object:
    body = call.body(NewKey)
    return call.service.keys.create(
        call.caller, call["org"], body.owner, label=body.label, expires_at=body.expires_at
    )


def _own_key_create(call: Call) -> object:
    body = call.body(NewOwnKey)
    return call.service.keys.create_own(call.caller, label=body.label, expires_at=body.expires_at)


def _key_rotate(call: Call) -> object:
    overlap = call.body(Rotation).overlap_seconds
    return call.service.keys.rotate(call.caller, call["key"], overlap_seconds=overlap)


def _key_block(call: Call, blocked: bool) -> object:
    call.nothing()
    return call.service.keys.set_blocked(call.caller, call["key"], blocked)


def _key_delete(call: Call) -> object:
    call.nothing()
    return call.service.keys.delete(call.caller, call["key"])


def _documents(call: Call) -> object:
    page = call.page("withdrawn")
    return call.service.documents.list(call.caller, withdrawn=call.flag("withdrawn"), **page)


def _document_publish(call: Call) -> object:
    body = call.body(NewDocument)
    return call.service.documents.publish(
        call.caller, name=body.name, audience=body.audience, text=body.text, org=body.org
    )


def _document_withdraw(call: Call) -> object:
    call.nothing()
    return call.service.documents.withdraw(call.caller, call["document"])


def _document_audience(call: Call) -> object:
    audience = call.body(NewAudience).audience
    return call.service.documents.set_audience(call.caller, call["document"], audience)


def _document_show(call: Call) -> object:
    call.only_query()
    return call.service.documents.show(call.caller, call["document"])


def _document_text(call: Call) -> object:
    call.only_query()
    return call.service.documents.text(call.caller, call["document"])


def _rules_set(call: Call) -> object:
    body = call.body(NewRules)
    return call.service.rules.set(
        call.caller, call["org"], tools=body.tools, system=body.system, messages=body.messages
    )


def _rules_show(call: Call) -> object:
    call.only_query()
    return call.service.rules.show(call.caller, call["org"])


def _epoch_show(call: Call) -> object:
    call.only_query("scope")
    return call.service.epochs.show(call.caller, call.query("scope") or "")


def _audit(call: Call) -> object:
    call.only_query("limit", "after")
    after = call.number("after", 0, 0, 2**62)
    return call.service.audit.list(call.caller, after=after, limit=call.limit())


def _audit_verify(call: Call) -> object:
    call.only_query("head")
    return call.service.audit.verify(call.caller, call.query("head"))


def _me(call: Call) -> object:
    call.only_query()
    return call.service.accounts.me(call.caller)


def _org_show(call: Call) -> object:
    call.only_query()
    return call.service.orgs.show(call.caller, call["org"])


def _revoke_user(call: Call) -> object:
    body = call.body(OfUser)
    return call.service.revocations.user(call.caller, body.org, body.name, erase=body.erase)


def _revoke_session(call: Call) -> object:
    body = call.body(OfSession)
    return call.service.revocations.session(
        call.caller, body.org, body.name, body.session, end_user=body.end_user
    )


def _revoke_membership(call: Call) -> object:
    body = call.body(OfMembership)
    return call.service.revocations.membership(call.caller, body.org, body.group, body.name)


def _receipt_show(call: Call) -> object:
    call.only_query()
    return call.service.receipts.show(call.caller, call["receipt"])


def _receipt_close(call: Call) -> object:
    reason = call.body(Closing).reason
    return call.service.receipts.close(call.caller, call["receipt"], reason)


_GROUP = "/orgs/{org}/groups/{group}"
ROUTES: tuple[Route, ...] = (
    Route("GET", "/me", _me),
    Route("GET", "/orgs", lambda c: c.service.orgs.list(c.caller, **c.page())),
    Route("POST", "/orgs", lambda c: c.service.orgs.create(c.caller, c.body(Named).name), 201),
    Route("GET", "/orgs/{org}", _org_show),
    Route("DELETE", "/orgs/{org}", _org_delete),
    Route("POST", "/orgs/{org}/block", lambda call: _org_block(call, True)),
    Route("POST", "/orgs/{org}/unblock", lambda call: _org_block(call, False)),
    *ACCOUNT_ROUTES,
    Route(
        "GET", "/orgs/{org}/groups", lambda c: c.service.groups.list(c.caller, c["org"], **c.page())
    ),
    Route(
        "POST",
        "/orgs/{org}/groups",
        lambda c: c.service.groups.create(c.caller, c["org"], c.body(Named).name),
        201,
    ),
    Route("DELETE", _GROUP, _group_delete),
    Route("PUT", f"{_GROUP}/members/{{name}}", lambda call: _member(call, True)),
    Route("DELETE", f"{_GROUP}/members/{{name}}", lambda call: _member(call, False)),
    Route("GET", "/keys", _own_keys),
    Route("POST", "/keys", _own_key_create, 201),
    Route("GET", "/orgs/{org}/keys", _keys),
    Route("POST", "/orgs/{org}/keys", _key_create, 201),
    Route("POST", "/keys/{key}/rotate", _key_rotate, 201),
    Route("POST", "/keys/{key}/block", lambda call: _key_block(call, True)),
    Route("POST", "/keys/{key}/unblock", lambda call: _key_block(call, False)),
    Route("DELETE", "/keys/{key}", _key_delete),
    Route("GET", "/documents", _documents),
    Route("POST", "/documents", _document_publish, 201),
    Route("GET", "/documents/{document}", _document_show),
    Route("GET", "/documents/{document}/text", _document_text),
    Route(
        "POST",
        "/documents/{document}/revisions",
        lambda c: c.service.documents.revise(c.caller, c["document"], c.body(NewText).text),
        201,
    ),
    Route("PUT", "/documents/{document}/audience", _document_audience),
    Route("POST", "/documents/{document}/withdraw", _document_withdraw),
    Route("GET", "/orgs/{org}/rules", _rules_show),
    Route("PUT", "/orgs/{org}/rules", _rules_set),
    Route("GET", "/epochs", _epoch_show),
    Route("POST", "/epochs/bump", lambda c: c.service.epochs.bump(c.caller, c.body(Target).scope)),
    Route("POST", "/revocations/users", _revoke_user, 202),
    Route("POST", "/revocations/sessions", _revoke_session, 202),
    Route("POST", "/revocations/memberships", _revoke_membership, 202),
    Route(
        "POST",
        "/revocations/documents",
        lambda c: c.service.revocations.document(c.caller, c.body(OfDocument).document),
        202,
    ),
    Route(
        "POST",
        "/revocations/orgs",
        lambda c: c.service.revocations.org(c.caller, c.body(OfOrg).org),
        202,
    ),
    Route("GET", "/receipts", lambda c: c.service.receipts.list(c.caller, **c.page())),
    Route("GET", "/receipts/{receipt}", _receipt_show),
    Route("POST", "/receipts/{receipt}/close", _receipt_close),
    Route("GET", "/audit", _audit),
    Route("GET", "/audit/verify", _audit_verify),
)
