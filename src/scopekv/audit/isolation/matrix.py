"""The matrix: every caller against every owner's text, of every scope kind. Pure.

What each caller may read is written down here anew, not asked of the policy under test.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from scopekv.audit.endpoint import COMPLETIONS
from scopekv.audit.isolation.target import IsolationTarget, Member, Place, Seat

GROUP = "crew"
SESSION = "one and the same"
END_USERS = ("eve", "eli")


class Kind(StrEnum):
    """Whose text an owner's prompt is, widest first."""

    PUBLIC = "public"  # a published document for everybody
    PUBLIC_TAIL = "public_tail"  # private text behind such a document
    ORG_DOCUMENT = "org_document"
    ORG_TEXT = "org_text"  # a system message
    GROUP_DOCUMENT = "group_document"
    USER_DOCUMENT = "user_document"
    USER = "user"
    END_USER = "end_user"
    SESSION = "session"

    @property
    def document(self) -> bool:
        return self in _DOCUMENTS


_DOCUMENTS = frozenset(
    (Kind.PUBLIC, Kind.PUBLIC_TAIL, Kind.ORG_DOCUMENT, Kind.GROUP_DOCUMENT, Kind.USER_DOCUMENT)
)


@dataclass(frozen=True, slots=True)
class Caller:
    """An account, and what it says to narrow its requests."""

    member: Member
    end_user: str = ""
    session: str = ""

    @property
    def seat(self) -> Seat:
        return self.member.seat

    def __str__(self) -> str:
        narrowed = [self.end_user and f"as {self.end_user}", self.session and "in a session"]
        return " ".join((f"{self.member.org}/{self.member.name}", *filter(None, narrowed)))


@dataclass(frozen=True, slots=True)
class Batch:
    """One owner's text, and all who try it. `model`: under which it is asked for."""

    place: Place
    kind: Kind
    endpoint: str
    model: str
    owner: Caller
    callers: tuple[Caller, ...]  # without the owner

    def allowed(self, caller: Caller) -> bool:
        return scope_of(self.kind, self.owner, caller) == scope_of(
            self.kind, self.owner, self.owner
        )

    def forbidden(self) -> list[Caller]:
        """Those who must not hit, none of whom may hit what one before left behind."""
        seen: set[tuple[str, ...]] = set()
        found = []
        for caller in self.callers:
            scope = scope_of(self.kind, self.owner, caller)
            if not self.allowed(caller) and scope not in seen:
                seen.add(scope)
                found.append(caller)
        return found

    def readers(self) -> list[Caller]:
        """Those who must hit; the owner comes last."""
        return [*(caller for caller in self.callers if self.allowed(caller)), self.owner]


def scope_of(kind: Kind, owner: Caller, caller: Caller) -> tuple[str, ...]:
    """The scope that `caller`'s copy of an `owner`'s text of this kind must get."""
    private = ("private", *caller.seat, caller.end_user, caller.session)
    same_org = caller.member.org == owner.member.org
    if kind is Kind.ORG_TEXT:
        return ("org", caller.member.org)
    reads = {
        Kind.PUBLIC: True,
        Kind.ORG_DOCUMENT: same_org,
        Kind.GROUP_DOCUMENT: same_org and GROUP in caller.member.groups,
        Kind.USER_DOCUMENT: caller.seat == owner.seat,
    }
    return ("document",) if reads.get(kind, False) else private


def callers_of(target: IsolationTarget) -> list[Caller]:
    """Every caller there is: accounts, and end users and sessions of some of them.

    The same names of end users and sessions are used in every organisation.
    """
    users = [member for member in target.members if not member.service]
    found = [Caller(member) for member in users]
    if not target.narrows:
        return found
    found.append(Caller(users[0], session=SESSION))
    for org in dict.fromkeys(member.org for member in target.members):
        own = [member for member in target.members if member.org == org]
        desk = next((member for member in own if member.service), own[0])
        found += [Caller(desk, END_USERS[0]), Caller(desk, END_USERS[0], SESSION)]
        if org == users[0].org:
            found.append(Caller(desk, END_USERS[1]))
    return found


def owners_of(target: IsolationTarget, callers: Sequence[Caller]) -> Iterator[tuple[Kind, Caller]]:
    """Whose texts are attacked, and of which kinds."""
    first = callers[0]
    plain = [caller for caller in callers if not caller.end_user and not caller.session]
    other = next((one for one in plain if one.member.org != first.member.org), plain[-1])
    documents = target.registrar is not None
    if documents:
        yield from ((Kind.PUBLIC, other), (Kind.PUBLIC_TAIL, first))
        yield from ((Kind.ORG_DOCUMENT, first), (Kind.USER_DOCUMENT, first))
        if GROUP in first.member.groups:
            yield Kind.GROUP_DOCUMENT, first
    yield from ((Kind.ORG_TEXT, first), (Kind.USER, first), (Kind.USER, other))
    served = [one for one in callers if one.end_user and one.member.org == first.member.org]
    yield from ((Kind.END_USER, one) for one in served[:1])
    yield from ((Kind.SESSION, one) for one in callers if one.session and one.seat == first.seat)
    yield from ((Kind.SESSION, one) for one in served if one.session and one.seat != first.seat)


def batches(
    target: IsolationTarget,
    places: Sequence[Place],
    endpoints: Sequence[str],
) -> list[Batch]:
    """The whole matrix, in the order in which it is walked.

    Public documents are pinned in engine memory, so that no tier behind it is ever asked for
    them. Completions have no system message. Adapters, and endpoints but the first two, are tried
    where blocks are nearest: what a tier is asked for does not depend on them.
    """
    callers = callers_of(target)
    owners = list(owners_of(target, callers))
    found = []
    for place in places:
        models = (target.model, *(target.adapters if place is places[0] else ()))
        for model in models:
            near = place is places[0] and model == target.model
            for endpoint in endpoints if near else endpoints[:2]:
                for kind, owner in owners:
                    pinned = kind in (Kind.PUBLIC, Kind.PUBLIC_TAIL)
                    if (pinned and not near) or (kind is Kind.ORG_TEXT and endpoint == COMPLETIONS):
                        continue
                    rest = tuple(caller for caller in callers if caller != owner)
                    found.append(Batch(place, kind, endpoint, model, owner, rest))
    return found
