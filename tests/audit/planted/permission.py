"""Planted faults of who may: documents, memberships, and what is kept of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from scopekv.core import policy
from scopekv.core.policy import Document
from scopekv.core.reasons import ScopeReason
from scopekv.core.scopes import AudienceKind, Principal
from scopekv.gateway import access, documents
from scopekv.gateway.access import Access
from scopekv.gateway.documents import DocumentIndex
from scopekv.gateway.http.messages import Request
from scopekv.gateway.passing import CLAIMS
from scopekv.gateway.prompts import Caller
from scopekv.gateway.warm import Warmer
from scopekv.ports import PublishedDocument
from tests.audit.planted.switch import Planted, all_of, patched

_may_read, _refresh, _caller = policy.may_read, Access.refresh, Access.caller


def _anybody(_principal: Principal, _document: Document) -> tuple[bool, ScopeReason]:
    return True, ScopeReason.DOCUMENT_PUBLIC


def _whole_org(principal: Principal, document: Document) -> tuple[bool, ScopeReason]:
    audience = document.audience
    if audience.kind is AudienceKind.GROUP and audience.path[0] == principal.org:
        return True, ScopeReason.DOCUMENT_GROUP
    return _may_read(principal, document)


def _readers(who: Any) -> Any:
    """A decision and the look-up of documents ask the same question."""
    return all_of(patched(policy, may_read=who), patched(documents, may_read=who))


def _withdrawn_kept() -> Any:
    """An index that forgets no document, and keys of epochs that are not looked at again."""
    known: dict[str, PublishedDocument] = {}

    def index(found: Iterable[PublishedDocument]) -> DocumentIndex:
        known.update((one.document.uid, one) for one in found)
        return DocumentIndex(known.values())

    return patched(access, DocumentIndex=index)


async def _keys_kept(self: Access) -> None:
    kept = dict(self._keys)
    await _refresh(self)
    self._keys |= kept


async def _claim_believed(
    self: Access, principal: Principal, request: Request, body: Mapping[str, Any], versions: object
) -> Caller:
    found = await _caller(self, principal, request, body, versions)
    claimed = next((text for name in CLAIMS if (text := request.header(name))), None)
    if claimed is None:
        return found
    with self._registry.read() as view:  # type: ignore[attr-defined]
        org = view.orgs.get(claimed.decode())
    if org is None:
        return found
    return replace(found, principal=replace(principal, org=org.name, org_uid=org.uid))


async def _not_warmed(_self: Warmer, *_: object) -> None:
    return None


PLANTED = {
    "audience_ignored": Planted(
        "anybody may read any document", "isolation.engine.org_document", lambda: _readers(_anybody)
    ),
    "membership_ignored": Planted(
        "a group's documents are its whole organisation's",
        "isolation.engine.group_document",
        lambda: _readers(_whole_org),
    ),
    "membership_kept": Planted(
        "a gateway keeps memberships and keys beyond their change",
        "isolation.changes.group_removed",
        lambda: patched(Access, refresh=_keys_kept),
    ),
    "withdrawn_shared": Planted(
        "a withdrawn document is shared on", "isolation.changes.document_withdrawn", _withdrawn_kept
    ),
    "claimed_org_believed": Planted(
        "a header names the caller's organisation",
        "isolation.fields.organisation_headers",
        lambda: patched(Access, caller=_claim_believed),
    ),
    "public_not_warm": Planted(
        "public documents are cached by their first reader",
        "isolation.public_warm",
        lambda: patched(Warmer, _bring_up=_not_warmed),
    ),
}
