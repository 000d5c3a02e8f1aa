"""The audit log with its check, and reports of security audits: for the operator."""

from __future__ import annotations

import asyncio
from pathlib import Path

from scopekv.console.parts import File, Page, Parts, Visit
from scopekv.errors import NotFound

ROWS = 100
REPORT = "report.html"
REPORT_BYTES_MAX = 32 << 20
REPORTS_MAX = 200
# A report carries its style in itself. It runs nothing, and reaches nothing.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; sandbox"


class Auditing:
    """The registry's log is read through the administration, which asks for the permission."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def log(self, visit: Visit) -> Page:
        return await self._log(visit, None)

    async def verify(self, visit: Visit) -> Page:
        """Recompute the chain of the whole log; the page says whether it is intact."""
        visit.only(visit.operator)
        head = visit.field("head") or None
        check = await asyncio.to_thread(
            self._parts.administration.audit.verify, visit.principal, head
        )
        return await self._log(visit, check)

    async def reports(self, visit: Visit) -> Page:
        visit.only(visit.operator)
        found = await asyncio.to_thread(self._reports)
        return Page("audits.html.j2", {"reports": found})

    async def report(self, visit: Visit) -> File:
        """One report, as it lies there. Raises `NotFound`."""
        visit.only(visit.operator)
        content = await asyncio.to_thread(self._report, visit.where[1])
        return File(content, "text/html; charset=utf-8", POLICY)

    async def _log(self, visit: Visit, check: object) -> Page:
        visit.only(visit.operator)
        given = visit.query.get("before", "")
        before = int(given) if given.isascii() and given.isdigit() and len(given) < 19 else None
        found = await asyncio.to_thread(
            self._parts.administration.audit.newest, visit.principal, before=before, limit=ROWS
        )
        values = {"entries": found.data, "next": found.next, "check": check}
        return Page("log.html.j2", values)

    def _reports(self) -> list[tuple[str, float]]:
        """Folders with a report, newest first."""
        found = [
            (path.parent.name, path.stat().st_mtime)
            for path in self._parts.audits.glob(f"*/{REPORT}")
            if _ours(path)
        ]
        return sorted(found, key=lambda row: -row[1])[:REPORTS_MAX]

    def _report(self, name: str) -> bytes:
        """Of the folders that are there, the one of that name: a name is never made a path."""
        for path in self._parts.audits.glob(f"*/{REPORT}"):
            if path.parent.name == name and _ours(path):
                if path.stat().st_size > REPORT_BYTES_MAX:
                    break
                return path.read_bytes()
        raise NotFound("there is no such page")


def _ours(path: Path) -> bool:
    return path.is_file() and not path.is_symlink() and not path.parent.is_symlink()
