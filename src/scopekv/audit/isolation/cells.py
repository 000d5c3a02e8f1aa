"""Cells of the matrix as they were found, and the figures and checks they add up to. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from scopekv.audit.results import Check, Plain, Severity, Verdict

ELSEWHERE_TRIES = 16  # for each engine more than one: of two, one in 65,000 cells stays open


KINDS = {  # whose text, in words
    "public": "a public document",
    "public_tail": "private text after a public document",
    "org_document": "an organisation's document",
    "group_document": "a group's document",
    "user_document": "a user's document",
    "org_text": "an organisation's instructions",
    "user": "a user's text",
    "end_user": "an end user's text",
    "session": "a session's text",
}


class Outcome(StrEnum):
    HIT = "hit"
    MISS = "miss"
    ELSEWHERE = "elsewhere"  # an engine answered that never had the block: nothing was tried
    FAILED = "failed"  # no answer, or an error


@dataclass(frozen=True, slots=True)
class Cell:
    """One caller's try at one owner's text.

    `group`: what a check is made of, dotted: `engine.user`, `changes.group_removed`. `place`: the
    tier that had the block.
    `proved`: whether the owner itself hit in the same batch; else a miss says nothing.
    `cached`: tokens told beyond the shared prefix. `error`: the code of a refusal.
    """

    group: str
    place: str
    endpoint: str
    model: str
    owner: str
    caller: str
    allowed: bool
    outcome: Outcome
    cached: int = 0
    proved: bool = True
    error: str = ""

    @property
    def key(self) -> tuple[str, ...]:
        return (
            *(self.group, self.place, self.endpoint, self.model, self.owner, self.caller),
            str(self.allowed),
        )

    @property
    def attack(self) -> bool:
        """Whether it is no plain cell of the matrix."""
        return self.group.partition(".")[0] in _TITLES

    @property
    def settled(self) -> bool:
        """Whether it says something; else it is worth another try."""
        if self.outcome is Outcome.HIT:
            return True
        return not self.allowed and self.outcome is Outcome.MISS and self.proved

    @property
    def leaked(self) -> bool:
        return not self.allowed and self.outcome is Outcome.HIT


def worth_another(cells: Collection[Cell], tries: int, *, tries_max: int, engines: int) -> bool:
    """Whether to try again what proved nothing, after so many tries of it.

    Where an engine answered that never had the block, chance decides, so that is tried longer.
    """
    open_ = [cell for cell in cells if not cell.settled]
    if not open_ or any(cell.leaked for cell in cells):
        return False
    if any(cell.outcome is Outcome.ELSEWHERE for cell in open_):
        return tries < max(tries_max, ELSEWHERE_TRIES * (engines - 1))
    return tries < tries_max


class Ledger:
    """All cells. Of several tries the last one counts, but a leak is never taken back."""

    def __init__(self) -> None:
        self._cells: dict[tuple[str, ...], Cell] = {}
        self.tries = 0

    def add(self, cells: Iterable[Cell]) -> None:
        for cell in cells:
            self.tries += 1
            before = self._cells.get(cell.key)
            if before is None or not before.leaked:
                self._cells[cell.key] = cell

    @property
    def cells(self) -> list[Cell]:
        return list(self._cells.values())

    def figures(self) -> dict[str, Plain]:
        """What other programs read, and the same counts by tier and by what was tried."""
        places: dict[str, list[Cell]] = {}
        kinds: dict[str, list[Cell]] = {}
        for cell in self._cells.values():
            places.setdefault(cell.place, []).append(cell)
            if not cell.attack:
                kinds.setdefault(cell.group.partition(".")[2], []).append(cell)
        return {
            **_counts(self._cells.values()),
            "by_tier": {name: _counts(cells) for name, cells in places.items()},
            "by_scope_kind": {name: _counts(cells) for name, cells in kinds.items()},
        }

    def checks(self) -> list[Check]:
        """One check a group, in the order in which groups came."""
        groups: dict[str, list[Cell]] = {}
        for cell in self._cells.values():
            groups.setdefault(cell.group, []).append(cell)
        return [_check(name, cells) for name, cells in groups.items()]


def _counts(cells: Collection[Cell]) -> dict[str, Plain]:
    forbidden = [cell for cell in cells if not cell.allowed]
    allowed = [cell for cell in cells if cell.allowed]
    return {
        "cells_forbidden": len(forbidden),
        "forbidden_hits": sum(cell.leaked for cell in forbidden),
        "forbidden_unproved": sum(not cell.settled for cell in forbidden),
        "cells_allowed": len(allowed),
        "allowed_misses": sum(cell.outcome is not Outcome.HIT for cell in allowed),
    }


def _check(group: str, cells: Sequence[Cell]) -> Check:
    leaks = [cell for cell in cells if cell.leaked]
    forbidden = [cell for cell in cells if not cell.allowed]
    allowed = [cell for cell in cells if cell.allowed]
    hits = sum(cell.outcome is Outcome.HIT for cell in allowed)
    unproved = sum(not cell.settled for cell in forbidden)
    control = f"{hits} of {len(allowed)} allowed reads came from the cache"
    if leaks:
        verdict = Verdict.BROKEN
        worst = max(leaks, key=lambda cell: cell.cached)
        summary = (
            f"{len(leaks)} of {len(forbidden)} forbidden reads hit: {worst.caller} read "
            f"{worst.cached} tokens of {worst.owner}"
        )
    elif hits < len(allowed) or not allowed or unproved:
        verdict = Verdict.BLIND
        summary = f"{control}; {unproved} of {len(forbidden)} forbidden reads prove nothing"
    else:
        verdict = Verdict.HELD
        summary = f"0 of {len(forbidden)} forbidden reads hit; {control}" if forbidden else control
    return Check(
        name=f"isolation.{group}",
        title=_title(group),
        verdict=verdict,
        summary=summary,
        severity=Severity.HIGH,
        tried=len(forbidden),
        control=control,
        evidence=_evidence(cells),
    )


def _title(group: str) -> str:
    where, _, what = group.partition(".")
    if where in _TITLES:
        return _TITLES[where].format(what.replace("_", " "))
    places = {"any": "any tier", "engine": "engine memory alone", "host": "host memory alone"}
    place = places.get(where, f"the {where} tier alone")
    return f"Only who may read it reuses {KINDS.get(what, what)} from {place}"


_TITLES = {
    "changes": "After a change ({}) the old blocks are read by nobody who lost the right",
    "fields": "What a client sets itself ({}) opens nothing",
    "tickets": "An engine shares nothing for a ticket that is {}",
    "adapters": "Blocks of one adapter are never read under another",
    "restart": "A restarted engine keeps scopes apart",
    "border": "A token that reaches over a document's end is private ({})",
}


def _evidence(cells: Sequence[Cell]) -> dict[str, Plain]:
    """Counts by outcome, and the names of callers whose cells are bad; never a text."""
    outcomes = Counter(
        f"{'allowed' if cell.allowed else 'forbidden'}_{cell.outcome}" for cell in cells
    )
    bad = [cell for cell in cells if cell.leaked or not cell.settled]
    rows: list[Plain] = [
        {
            "owner": cell.owner,
            "caller": cell.caller,
            "tier": cell.place,
            "endpoint": cell.endpoint,
            "model": cell.model,
            "allowed": cell.allowed,
            "outcome": cell.outcome.value,
            "cached_tokens": cell.cached,
            "error": cell.error,
        }
        for cell in bad[:20]
    ]
    return {"outcomes": dict(outcomes), "bad_cells": rows}
