"""Requests of late, and why one was not read from the cache.

Who sees which: an operator all, an organisation's administrator that one's, anybody else their own.
What was *in* a request is shown to its sender alone: an explanation repeats the prompt's words.
"""

from __future__ import annotations

import time

from scopekv.console.parts import Page, Parts, Visit
from scopekv.errors import NotFound
from scopekv.gateway.explaining import Recent
from scopekv.gateway.http.messages import Request

ROWS_MAX = 100


class RequestPages:
    """Over what the gateway remembers of requests, in memory."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def list(self, visit: Visit) -> Page:
        who = visit.principal
        if visit.operator:
            found = self._parts.recents.newest(ROWS_MAX)
        elif visit.org_admin:
            found = self._parts.recents.newest(ROWS_MAX, org=who.org_uid)
        else:
            found = self._parts.recents.newest(ROWS_MAX, principal=who.uid)
        rows = [self._row(visit, one) for one in found]
        everybody = visit.operator or visit.org_admin
        return Page("requests.html.j2", {"requests": rows, "everybody": everybody})

    async def show(self, visit: Visit) -> Page:
        """Raises `NotFound` alike for another's request and for none (L10)."""
        recent = self._parts.recents.get(visit.where[1])
        if recent is None or recent.principal != visit.principal.uid:
            raise NotFound("there is no such page")
        plain = Request("GET", visit.request.path, "", [], b"")
        access = self._parts.access
        caller = await access.caller(visit.principal, plain, {}, access.versions)
        told = await self._parts.explainer.recent(caller, recent.request_id)
        return Page("request.html.j2", {"row": self._row(visit, recent), "told": told})

    def _row(self, visit: Visit, recent: Recent) -> dict[str, object]:
        ago = time.monotonic() - recent.at_seconds
        rate = None
        if recent.cached is not None and recent.prompt_tokens:
            rate = recent.cached / recent.prompt_tokens
        return {
            "id": recent.request_id,
            "at": self._parts.clock() - ago,
            "sender": recent.sender,
            "path": recent.path,
            "kind": recent.owner.kind.value,
            "instance": recent.instance,
            "tokens": recent.prompt_tokens,
            "cached": recent.cached,
            "rate": rate,
            "own": recent.principal == visit.principal.uid,
        }
