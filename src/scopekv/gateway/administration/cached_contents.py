"""Cached contents: documents that an account makes for itself, and that end by themselves.

Each is a published document with one audience, the account or (for who may publish) its
organisation, and an end. At its end it is withdrawn and what was kept of it is revoked (L6).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from scopekv.core.administration import Action, Resource
from scopekv.core.scopes import Audience, AudienceKind, Principal
from scopekv.errors import Misuse, NotFound, TooLarge
from scopekv.gateway.administration.ending import Ending
from scopekv.gateway.administration.gate import LOCAL_OPERATOR, Act, Gate, shown
from scopekv.ports import CachedContent

DISPLAY_CHARS_MAX = 128


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one account at a time, and of all of an organisation's; `ttl_seconds_max`: from now."""

    count_max: int
    bytes_max: int
    ttl_seconds_max: int
    org_count_max: int
    org_bytes_max: int


@dataclass(frozen=True, slots=True, repr=False)
class NewContent:
    """What is to be kept. `wide`: for the caller's organisation, not for the account alone."""

    model: str
    display_name: str
    text: str
    tokens: int | None
    ttl_seconds: float
    wide: bool

    def __post_init__(self) -> None:
        if len(self.display_name) > DISPLAY_CHARS_MAX or not self.display_name.isprintable():
            raise Misuse(f"displayName takes at most {DISPLAY_CHARS_MAX} printable characters")


class CachedContentAdministration:
    """Acts of accounts on their own. `ref` is the document's id."""

    def __init__(self, gate: Gate, clock: Callable[[], float]) -> None:
        self._gate, self._clock = gate, clock

    def check_room(self, caller: Principal, content: NewContent, limits: Limits) -> None:
        """Raise what `create` would, changing nothing."""
        label = f"cached_content audience:{_audience(caller, content)}"
        with self._gate.look(caller, Action.CACHED_CONTENT_CREATE, label) as act:
            self._check(act, _audience(caller, content), content, limits)

    def create(self, caller: Principal, content: NewContent, limits: Limits) -> CachedContent:
        """Publish it until its end. Raises `TooLarge` over a limit."""
        audience = _audience(caller, content)
        label = f"cached_content audience:{audience}"
        with self._gate.act(caller, Action.CACHED_CONTENT_CREATE, label) as act:
            self._check(act, audience, content, limits)
            made = act.tx.documents.publish(
                act.caller.org_uid, f"cached-{secrets.token_hex(12)}", audience, content.text
            )
            act.resource += f" new:{made.document.uid}"
            return act.tx.cached_contents.add(
                made.document.uid,
                act.caller.uid,
                model=content.model,
                display_name=content.display_name,
                tokens=content.tokens,
                expires_at=self._end(content.ttl_seconds, limits),
            )

    def list(self, caller: Principal) -> Sequence[CachedContent]:
        """The caller's own, oldest first."""
        with self._gate.look(caller, Action.CACHED_CONTENT_SHOW, "cached_content:*") as act:
            act.require(Resource(act.caller.org_uid, account=act.caller))
            now = self._clock()
            own = act.tx.cached_contents.of_account(act.caller.uid)
            return [one for one in own if one.expires_at > now]

    def show(self, caller: Principal, ref: str) -> CachedContent:
        label = f"cached_content:{ref}"
        with self._gate.look(caller, Action.CACHED_CONTENT_SHOW, label) as act:
            return self._own(act, ref)

    def extend(
        self, caller: Principal, ref: str, ttl_seconds: float, limits: Limits
    ) -> CachedContent:
        """Set another end, counted from now. Its blocks stay what they are."""
        label = f"cached_content:{ref}"
        with self._gate.act(caller, Action.CACHED_CONTENT_EXTEND, label) as act:
            self._own(act, ref)
            return act.tx.cached_contents.extend(ref, self._end(ttl_seconds, limits))

    def delete(self, caller: Principal, ref: str) -> str:
        """End it now. Returns the id of the receipt of what is purged."""
        label = f"cached_content:{ref}"
        with self._gate.act(caller, Action.CACHED_CONTENT_DELETE, label) as act:
            return _ended(act, self._own(act, ref))

    def expire(self) -> int:
        """End every one whose time is over. Returns how many. One that ended already is none.

        Several gateways may do it at once: each ends what the others have left.
        """
        with self._gate.registry.read() as view:
            due = view.cached_contents.due(self._clock())
        count = 0
        for one in due:
            uid = one.record.document.uid
            label = f"cached_content:{uid}"
            with self._gate.act(LOCAL_OPERATOR, Action.CACHED_CONTENT_EXPIRE, label) as act:
                act.require(Resource(one.record.org_uid))
                found = act.tx.cached_contents.get(uid)
                if found is not None and found.expires_at <= self._clock():
                    _ended(act, found)
                    count += 1
        return count

    def _check(self, act: Act, audience: Audience, content: NewContent, limits: Limits) -> None:
        resource = Resource(act.caller.org_uid, account=act.caller, audiences=(audience,))
        act.require(resource)
        kept = act.tx.cached_contents
        _check_room(kept.of_account(act.caller.uid), content, limits)
        _check_org_room(kept.of_org(act.caller.org_uid), content, limits)
        self._end(content.ttl_seconds, limits)

    def _end(self, ttl_seconds: float, limits: Limits) -> float:
        if not 0 < ttl_seconds <= limits.ttl_seconds_max:
            raise Misuse(
                f"the end is {ttl_seconds:.0f} s from now; it takes more than 0 and at most "
                f"{limits.ttl_seconds_max} s"
            )
        return self._clock() + ttl_seconds

    def _own(self, act: Act, ref: str) -> CachedContent:
        """One that the caller made and that has not ended; else as if it were not there (L10)."""
        found = act.tx.cached_contents.get(ref)
        if found is not None and found.account_uid == act.caller.uid:
            audiences = (found.record.document.audience,)
            act.require(Resource(found.record.org_uid, account=act.caller, audiences=audiences))
            if found.expires_at > self._clock():
                return found
        raise NotFound(f"cached content {shown(ref)} does not exist; list them to see yours")


def _audience(caller: Principal, content: NewContent) -> Audience:
    if content.wide:
        return Audience(AudienceKind.ORG, (caller.org,))
    return Audience(AudienceKind.USER, (caller.org, caller.name))


def _check_room(own: Sequence[CachedContent], content: NewContent, limits: Limits) -> None:
    if len(own) >= limits.count_max:
        raise TooLarge(
            f"this account has {len(own)} cached contents; the limit is {limits.count_max}: "
            "delete one, or let it end"
        )
    taken = _bytes(own, content)
    if taken > limits.bytes_max:
        raise TooLarge(
            f"this account's cached contents would have {taken} bytes; the limit is "
            f"{limits.bytes_max}: delete one, or let it end"
        )


def _check_org_room(all_: Sequence[CachedContent], content: NewContent, limits: Limits) -> None:
    """How much others have is not told (L10)."""
    full = ""
    if len(all_) >= limits.org_count_max:
        full = f"the limit is per_org_max = {limits.org_count_max}"
    elif _bytes(all_, content) > limits.org_bytes_max:
        full = f"the limit is bytes_per_org_max = {limits.org_bytes_max}"
    if full:
        raise TooLarge(
            f"your organisation's accounts have no room left for this cached content; {full}: "
            "delete some, let them end, or ask the gateway's operator for more"
        )


def _bytes(kept: Sequence[CachedContent], content: NewContent) -> int:
    """Of their texts and the new one, in UTF-8."""
    size = len(content.text.encode("utf-8", "surrogatepass"))
    return size + sum(one.record.size_bytes for one in kept)


def _ended(act: Act, content: CachedContent) -> str:
    ending = Ending(act)
    ending.end_cached([content])
    record = content.record
    return ending.receipt(record.org_uid, f"document:{record.org}/{record.name}").uid
