"""Documents and their audiences: to publish and change, or to see what one may read."""

from __future__ import annotations

import asyncio
from urllib.parse import quote

from scopekv.console.parts import CONSOLE, WAIT_SECONDS, Page, Parts, Redirect, Visit
from scopekv.core.administration import Action, Resource, may
from scopekv.core.scopes import Audience
from scopekv.errors import Misuse
from scopekv.gateway.administration.views import DocumentDetail, DocumentView

ROWS = 100


class DocumentPages:
    """Lists, shows and changes documents, as the administration service permits."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._service = parts.administration.documents

    async def list(self, visit: Visit) -> Page:
        withdrawn = visit.query.get("withdrawn") == "1"
        found = await asyncio.to_thread(
            self._service.list,
            visit.principal,
            after=visit.query.get("after", ""),
            limit=ROWS,
            withdrawn=withdrawn,
        )
        values = {"documents": found.data, "next": found.next, "withdrawn": withdrawn}
        return Page("documents.html.j2", values)

    async def show(self, visit: Visit) -> Page:
        detail = await asyncio.to_thread(self._service.show, visit.principal, visit.where[1])
        values = {
            "document": detail.document,
            "detail": detail,
            "changes": _changes(visit, detail),
        }
        return Page("document.html.j2", values)

    async def publish(self, visit: Visit) -> Redirect:
        """A new document. Blanks and line ends of its text stay as they were sent."""
        made = await asyncio.to_thread(
            self._service.publish,
            visit.principal,
            name=visit.field("name"),
            audience=visit.field("audience"),
            text=_text(visit),
            org=visit.field("org") or None,
        )
        return await self._done(visit, made, "The document is published.")

    async def revise(self, visit: Visit) -> Redirect:
        made = await asyncio.to_thread(
            self._service.revise, visit.principal, visit.where[1], _text(visit)
        )
        return await self._done(visit, made, "The document has its new text.")

    async def set_audience(self, visit: Visit) -> Redirect:
        made = await asyncio.to_thread(
            self._service.set_audience, visit.principal, visit.where[1], visit.field("audience")
        )
        return await self._done(visit, made, "The document has its new audience.")

    async def withdraw(self, visit: Visit) -> Redirect:
        if visit.field("sure") != "yes":
            raise Misuse("tick the box: withdrawing is for good")
        made = await asyncio.to_thread(self._service.withdraw, visit.principal, visit.where[1])
        return await self._done(visit, made, "The document is withdrawn.")

    async def _done(self, visit: Visit, made: DocumentView, notice: str) -> Redirect:
        """Lead to the receipt where something is purged, as it is soon after; else back."""
        visit.session.notice = visit.language.text(notice)
        if made.receipt is not None:
            await self._parts.revoker.settled(made.receipt, WAIT_SECONDS)
            return Redirect(f"{CONSOLE}/receipts/{quote(made.receipt)}")
        return Redirect(f"{CONSOLE}/documents/{quote(made.id)}")


def _text(visit: Visit) -> str:
    text = visit.form.get("text", "")
    if not text:
        raise Misuse("the text is empty; a document has at least one character")
    return text


def _changes(visit: Visit, detail: DocumentDetail) -> bool:
    """Whether to offer forms. What a form then does is decided anew."""
    document = detail.document
    if document.withdrawn:
        return False
    own = document.org == visit.principal.org
    resource = Resource(
        visit.principal.org_uid if own else "", audiences=(Audience.parse(document.audience),)
    )
    return may(visit.principal, Action.DOCUMENT_REVISE, resource).allowed
