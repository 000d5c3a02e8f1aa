"""Revoking, and its receipts: per instance and tier, until it is done everywhere."""

from __future__ import annotations

import asyncio
from urllib.parse import quote

from scopekv.console.parts import CONSOLE, WAIT_SECONDS, Page, Parts, Redirect, Visit
from scopekv.errors import Misuse
from scopekv.gateway.administration.views import RevocationView

ROWS = 50
TARGETS = ("user", "session", "membership", "document", "org")


class Revoking:
    """For operators and administrators of an organisation; receipts also for who acted."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def form(self, visit: Visit) -> Page:
        visit.only(visit.operator or visit.org_admin)
        org = "" if visit.operator else visit.principal.org
        return Page("revoke.html.j2", {"org": org})

    async def revoke(self, visit: Visit) -> Redirect:
        """Do it, wait a little for every instance, and lead to the receipt."""
        visit.only(visit.operator or visit.org_admin)
        if visit.field("target") not in TARGETS:
            raise Misuse(f"a revocation is of one of: {', '.join(TARGETS)}")
        made = await asyncio.to_thread(self._revoked, visit)
        await self._parts.revoker.settled(made.receipt.id, WAIT_SECONDS)
        visit.session.notice = visit.language.text(
            "Revoked: {effect}. Keys destroyed: {keys}.",
            effect=made.effect,
            keys=made.keys_destroyed,
        )
        return Redirect(f"{CONSOLE}/receipts/{quote(made.receipt.id)}")

    async def list(self, visit: Visit) -> Page:
        visit.only(visit.operator or visit.org_admin)
        found = await asyncio.to_thread(
            self._parts.administration.receipts.list,
            visit.principal,
            after=visit.query.get("after", ""),
            limit=ROWS,
        )
        return Page("receipts.html.j2", {"receipts": found.data, "next": found.next})

    async def show(self, visit: Visit) -> Page:
        receipt = await asyncio.to_thread(
            self._parts.administration.receipts.show, visit.principal, visit.where[1]
        )
        return Page("receipt.html.j2", {"receipt": receipt})

    def _revoked(self, visit: Visit) -> RevocationView:
        service, who = self._parts.administration.revocations, visit.principal
        target, org, name = visit.field("target"), visit.field("org"), visit.field("name")
        if target == "user":
            return service.user(who, org, name, erase=visit.field("erase") == "yes")
        if target == "session":
            return service.session(
                who, org, name, visit.field("session"), end_user=visit.field("end_user")
            )
        if target == "membership":
            return service.membership(who, org, visit.field("group"), name)
        if target == "document":
            return service.document(who, visit.field("document"))
        if visit.field("sure") != org:
            raise Misuse("write the organisation's name twice: this ends all that is kept of it")
        return service.org(who, org)
