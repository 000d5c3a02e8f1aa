"""What one audit does, in order: the matrix, then everything that is no plain cell of it."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from scopekv.audit.isolation.asking import Asking
from scopekv.audit.isolation.batches import Walk
from scopekv.audit.isolation.borders import try_border
from scopekv.audit.isolation.cells import Cell
from scopekv.audit.isolation.changes import CHANGES, Seats, try_change
from scopekv.audit.isolation.crossings import try_adapter, try_restart
from scopekv.audit.isolation.fields import attacks, stolen, try_claim, try_field
from scopekv.audit.isolation.matrix import Caller, batches
from scopekv.audit.isolation.old_tickets import try_old_tickets
from scopekv.audit.isolation.target import Place
from scopekv.audit.isolation.tickets import try_tickets

Try = Callable[[], Awaitable[list[Cell]]]


@dataclass(frozen=True, slots=True)
class Job:
    """`what` is shown while it runs. `run` adds to the ledger of the walk."""

    what: str
    run: Callable[[], Awaitable[None]]


async def jobs(walk: Walk, places: Sequence[Place], callers: Sequence[Caller]) -> list[Job]:
    """Everything that the means at hand allow. Asks the engines who they are."""
    asking = walk.asking
    statuses = await asking.engines.statuses()
    rest = [
        *_changes(asking, places, callers),
        *await _fields(asking, callers, statuses),
        *_tickets(asking, statuses),
        *_crossings(asking, callers),
        *_borders(asking, callers),
    ]
    matrix = batches(asking.target, places, asking.endpoints)
    return [
        *(Job(f"{one.place}: {one.kind}", partial(walk.batch, one)) for one in matrix),
        *(Job(what, partial(_kept, walk, attempt)) for what, attempt in rest),
    ]


async def _kept(walk: Walk, attempt: Try) -> None:
    """Try until it proves something, or as often as is allowed."""
    for tries in itertools.count(1):
        cells = await attempt()
        walk.ledger.add(cells)
        if not walk.asking.again(cells, tries):
            return


def stranger_of(callers: Sequence[Caller]) -> Caller:
    """A plain caller of another organisation than the first one's, if there is one."""
    first = callers[0].member
    other = [caller for caller in callers[1:] if caller.seat != first.seat]
    return next((caller for caller in other if caller.member.org != first.org), other[0])


def _changes(
    asking: Asking, places: Sequence[Place], callers: Sequence[Caller]
) -> Iterator[tuple[str, Try]]:
    seats = Seats.of(callers)
    if asking.target.registrar is None or seats is None:
        return
    for place in places[:1] if asking.settings.quick else places:
        for change in CHANGES:
            yield f"{place}: {change.name}", partial(try_change, asking, change, seats, place)


async def _fields(
    asking: Asking, callers: Sequence[Caller], statuses: Sequence[dict[str, Any]]
) -> list[tuple[str, Try]]:
    victim, forge = callers[0], asking.target.forge
    loot = await stolen(forge, asking, victim, statuses[0]) if forge and statuses else {}
    same_org = [
        caller
        for caller in callers
        if caller.member.org == victim.member.org
        and caller.seat != victim.seat
        and not (caller.end_user or caller.session)
    ]
    others = list(dict.fromkeys((stranger_of(callers), *same_org[:1])))
    stranger = stranger_of(callers)
    found: list[tuple[str, Try]] = [
        (f"a client sets {attack.name}", partial(try_field, asking, attack, victim, others, loot))
        for attack in attacks(quick=asking.settings.quick)
    ]
    if stranger.member.org != victim.member.org:
        claim = partial(try_claim, asking, victim, stranger)
        found.append(("a client names another organisation", claim))
    return found


def _tickets(asking: Asking, statuses: Sequence[dict[str, Any]]) -> Iterator[tuple[str, Try]]:
    forge = asking.target.forge
    if forge is None:
        return
    for engine, status in zip(asking.engines.known, statuses, strict=False):  # none: no plugin
        what = f"false tickets at {engine.name}"
        yield what, partial(try_tickets, asking, engine, forge, status)
        what = f"tickets from before a revocation at {engine.name}"
        yield what, partial(try_old_tickets, asking, engine, forge, status)


def _borders(asking: Asking, callers: Sequence[Caller]) -> Iterator[tuple[str, Try]]:
    if asking.target.registrar is not None and asking.engines.known:
        what = "a token over a document's end"
        yield what, partial(try_border, asking, callers[0], stranger_of(callers))


def _crossings(asking: Asking, callers: Sequence[Caller]) -> Iterator[tuple[str, Try]]:
    owner, stranger = callers[0], stranger_of(callers)
    for adapter in asking.target.adapters:
        yield f"adapter {adapter}", partial(try_adapter, asking, adapter, owner, stranger)
    for engine in () if asking.settings.quick else asking.engines.known:
        if engine.restart is not None:
            what = f"restart of {engine.name}"
            yield what, partial(try_restart, asking, engine, owner, stranger)
