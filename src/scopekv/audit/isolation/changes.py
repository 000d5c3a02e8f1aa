"""Changes of permission: what was readable, and must not be from the next request on.

Each: an owner fills, somebody reads it (the control), the right is taken away, the same one asks
again and must not hit; then the owner fills anew and must hit, or the new state serves nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from scopekv.audit.endpoint import CHAT
from scopekv.audit.isolation.asking import Asking, audience
from scopekv.audit.isolation.cells import Cell, Outcome
from scopekv.audit.isolation.matrix import GROUP, SESSION, Caller, Kind
from scopekv.audit.isolation.target import Place, Registrar
from scopekv.audit.isolation.texts import Prompt
from scopekv.errors import Misuse


@dataclass(frozen=True, slots=True)
class Seats:
    """Who plays what: three accounts of one organisation, two of them in the group."""

    owner: Caller
    mate: Caller  # in the group as well
    other: Caller  # not in it; may be deleted and made anew

    @classmethod
    def of(cls, callers: Sequence[Caller]) -> Seats | None:
        """None where the keys at hand do not cover them."""
        home = callers[0].member.org
        plain = [c for c in callers if not c.end_user and not c.session and c.member.org == home]
        inside = [caller for caller in plain if GROUP in caller.member.groups]
        outside = [caller for caller in plain if GROUP not in caller.member.groups]
        return cls(inside[0], inside[1], outside[0]) if len(inside) > 1 and outside else None


Act = Callable[[Asking, Registrar, str, Seats], None]


@dataclass(frozen=True, slots=True)
class Change:
    """`reader`: who reads before and must not after. `restore`: see below.

    `apart`: what the reader sends afterwards is its own, so the owner must not read that either.
    """

    name: str
    kind: Kind
    owner: Callable[[Seats], Caller]
    reader: Callable[[Seats], Caller]
    act: Act
    apart: bool = False
    restore: Act | None = None  # done after the forbidden read; then the reader must hit, too


def _session(seats: Seats) -> Caller:
    return Caller(seats.owner.member, session=SESSION)


def _recreate(asking: Asking, by: Registrar, _ref: str, seats: Seats) -> None:
    asking.keys[seats.other.seat] = by.recreate(*seats.other.seat)


def _leave(_asking: Asking, by: Registrar, _ref: str, seats: Seats) -> None:
    by.set_member(seats.mate.member.org, GROUP, seats.mate.member.name, inside=False)


def _return(_asking: Asking, by: Registrar, _ref: str, seats: Seats) -> None:
    by.set_member(seats.mate.member.org, GROUP, seats.mate.member.name, inside=True)


def _owner(seats: Seats) -> Caller:
    return seats.owner


def _mate(seats: Seats) -> Caller:
    return seats.mate


def _other(seats: Seats) -> Caller:
    return seats.other


CHANGES = (
    Change(
        "group_removed", Kind.GROUP_DOCUMENT, _owner, _mate, _leave, apart=True, restore=_return
    ),
    Change(
        *("audience_narrowed", Kind.ORG_DOCUMENT, _owner, _other),
        lambda _, by, ref, who: by.set_audience(ref, audience(Kind.GROUP_DOCUMENT, who.owner)),
        apart=True,
    ),
    Change(
        *("document_withdrawn", Kind.ORG_DOCUMENT, _owner, _mate),
        lambda _, by, ref, _who: by.withdraw(ref),
        apart=True,
    ),
    Change(
        *("document_revised", Kind.ORG_DOCUMENT, _owner, _mate),
        lambda asking, by, ref, _who: by.revise(ref, asking.texts.text()),
        apart=True,
    ),
    Change(
        *("document_revoked", Kind.ORG_DOCUMENT, _owner, _mate),
        lambda _, by, ref, _who: by.revoke_document(ref),
    ),
    Change(
        *("user_revoked", Kind.USER, _owner, _owner),
        lambda _, by, _ref, who: by.revoke_user(*who.owner.seat),
    ),
    Change(
        *("session_revoked", Kind.SESSION, _session, _session),
        lambda _, by, _ref, who: by.revoke_session(*who.owner.seat, SESSION),
    ),
    Change("account_recreated", Kind.USER, _other, _other, _recreate),
)


async def try_change(asking: Asking, change: Change, seats: Seats, place: Place) -> list[Cell]:
    """One change with the block in one tier alone. Raises `Misuse` without a registrar."""
    registrar = asking.target.registrar
    if registrar is None:
        raise Misuse("without a registrar nothing can be changed")
    owner, reader = change.owner(seats), change.reader(seats)
    ref = ""
    prompt = Prompt(CHAT, asking.target.model, asking.texts.text(), asking.texts.tail())
    if change.kind.document:
        ref = await asking.document(audience(change.kind, owner), prompt.head)
    watched = asking.many and not place.shared
    await asking.next_engine()
    filled = await asking.ask(owner, prompt, watched=watched)
    await asking.alone(place)
    before = await asking.ask(reader, prompt, watched=watched)
    await asking.alone(place)
    await asking.act(lambda: change.act(asking, registrar, ref, seats))
    after = await asking.ask(reader, prompt, watched=watched)
    first = await asking.ask(owner, prompt)
    if change.restore is not None:
        restore = change.restore
        await asking.act(lambda: restore(asking, registrar, ref, seats))
        await asking.ask(owner, prompt)
    await asking.alone(place)
    late = reader if change.restore is not None else owner
    again = await asking.ask(late, prompt)
    beyond = asking.beyond[CHAT, asking.target.model]
    had = before.outcome(beyond) is Outcome.HIT

    cell = partial(
        asking.cell, group=f"changes.{change.name}", owner=owner, proved=had, place=place
    )
    late_read = cell(after, caller=f"{reader}, after", allowed=False)
    if not had:  # then what it reads now may be its own copy of before
        late_read = replace(late_read, outcome=Outcome.FAILED, error="its control missed")
    elif watched and not after.engines & (filled.engines | before.engines):
        late_read = replace(late_read, outcome=Outcome.ELSEWHERE)
    left = cell(first, caller=f"{owner}, what {reader} left behind", allowed=False)
    return [
        cell(before, caller=f"{reader}, before", allowed=True),
        late_read,
        # Where documents are not shared at all, what the owner reads is its own copy of before.
        *(
            [replace(left, proved=again.outcome(beyond) is Outcome.HIT)]
            if change.apart and had
            else ()
        ),
        cell(again, caller=f"{late}, in the new state", allowed=True),
    ]
