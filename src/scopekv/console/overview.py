"""The first page: how much was read from the cache, what sharing saved, what isolation costs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add

from scopekv.console.charts import rate_chart, stacked_chart
from scopekv.console.languages import Language, number
from scopekv.console.parts import Page, Parts, Visit
from scopekv.core.scopes import ScopeKind
from scopekv.core.tallies import WINDOWS, Medium, Tally, Window
from scopekv.errors import NotFound
from scopekv.gateway.administration.views import OrgView

ORGS_MAX = 1000
ROWS_MAX = 100
LAYERS = ("shared", "own", "computed")


@dataclass(frozen=True, slots=True)
class _Found:
    """What one page reads of the tallies."""

    by_start: Mapping[int, Tally]
    by_instance: Mapping[str, Tally]
    by_org: Mapping[str, Tally]

    @property
    def total(self) -> Tally:
        return reduce(add, self.by_start.values(), Tally())


class Overview:
    """An operator's is of all, an org_admin's of the organisation, anybody else's their own."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def show(self, visit: Visit) -> Page:
        """Cost: three sums over the rows of one window, whatever the number of requests."""
        window = _window(visit.query.get("window", ""))
        return Page("overview.html.j2", await asyncio.to_thread(self._values, visit, window))

    def _values(self, visit: Visit, window: Window) -> dict[str, object]:
        orgs = self._orgs(visit)
        chosen = visit.query.get("org", "") if visit.operator else ""
        now = self._parts.clock()
        found = self._found(visit, window, now, orgs, chosen)
        total, steps = found.total, WINDOWS[window]
        starts = steps.starts(now)
        tallies = [found.by_start.get(start, Tally()) for start in starts]
        names = {org.uid: org.name for org in orgs}
        return {
            "window": window.value,
            "windows": [one.value for one in Window],
            "org": chosen,
            "orgs": [org.name for org in orgs],
            "whose": _whose(visit, chosen),
            "total": total,
            "first_token": total.rate("first_token_ms", "first_token_requests"),
            "rate": rate_chart(starts, [one.token_hit_rate for one in tallies], steps.seconds),
            "tokens": stacked_chart(
                starts, _layers(tallies), steps.seconds, _titles(visit.language, steps.seconds)
            ),
            "steps": [
                (_when(start, steps.seconds), one)
                for start, one in zip(starts, tallies, strict=True)
                if one["requests"]
            ],
            "kinds": [(kind.value, *_of(total, kind)) for kind in ScopeKind if _of(total, kind)[0]],
            "media": [(one.value, total[f"from_{one}"]) for one in Medium if total[f"from_{one}"]],
            "instances": sorted(found.by_instance.items()),
            "by_org": _largest(found.by_org, names)[:ROWS_MAX],
            "by_org_count": len(found.by_org),
        }

    def _found(
        self, visit: Visit, window: Window, now: float, orgs: Sequence[OrgView], chosen: str
    ) -> _Found:
        tallies = self._parts.tallies
        if visit.operator:
            owner = next((org.uid for org in orgs if org.name == chosen), None)
            if chosen and owner is None:
                raise NotFound("there is no such page")
            by_org = tallies.by_owner(window, now) if owner is None else {}
        elif visit.org_admin:
            owner, by_org = visit.principal.org_uid, {}
        else:
            mine = tallies.of_account(window, now, visit.principal.uid)
            return _Found(mine, {}, {})
        by_start = tallies.by_start(window, now, owner)
        return _Found(by_start, tallies.by_instance(window, now, owner), by_org)

    def _orgs(self, visit: Visit) -> Sequence[OrgView]:
        if not visit.operator:
            return ()
        found = self._parts.administration.orgs.list(visit.principal, after="", limit=ORGS_MAX)
        return [one for one in found.data if isinstance(one, OrgView)]


def _window(name: str) -> Window:
    return Window(name) if name in set(Window) else Window.DAY


def _whose(visit: Visit, chosen: str) -> str:
    if visit.operator:
        return chosen
    own = visit.principal
    return own.org if visit.org_admin else f"{own.org}/{own.name}"


def _of(total: Tally, kind: ScopeKind) -> tuple[int, int]:
    return total[f"input_{kind}"], total[f"cached_{kind}"]


def _layers(tallies: Sequence[Tally]) -> Mapping[str, Sequence[int]]:
    shared = [one["shared_tokens"] for one in tallies]
    own = [one["cached_tokens"] - one["shared_tokens"] for one in tallies]
    computed = [one["input_tokens"] - one["cached_tokens"] for one in tallies]
    return dict(zip(LAYERS, (shared, own, computed), strict=True))


def _titles(language: Language, step: int) -> Callable[[int, str, int], str]:
    names = {
        "shared": language.text("read, shared scopes"),
        "own": language.text("read, own scopes"),
        "computed": language.text("computed"),
    }

    def title(start: int, kind: str, count: int) -> str:
        return f"{_when(start, step)}: {names[kind]}, {number(count)}"

    return title


def _when(start: int, step: int) -> str:
    return time.strftime("%Y-%m-%d" if step >= 86_400 else "%m-%d %H:%M", time.gmtime(start))


def _largest(by_org: Mapping[str, Tally], names: Mapping[str, str]) -> list[tuple[str, Tally]]:
    """By input tokens, most first; what was deleted since keeps its uid."""
    rows = [(names.get(uid, uid), tally) for uid, tally in by_org.items()]
    return sorted(rows, key=lambda row: (-row[1]["input_tokens"], row[0]))
