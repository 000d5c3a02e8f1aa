"""Planted faults of the engine's judgement: what of a ticket is not looked at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from scopekv.core import enforcement, tickets
from scopekv.core.blocks import Fingerprint
from scopekv.core.enforcement import IsolatedTags
from scopekv.core.fences import Fences
from scopekv.core.replay import UseLedger
from scopekv.core.scopes import ScopeId
from scopekv.core.tickets import (
    AudienceId,
    Check,
    KeyId,
    Ticket,
    verify_for_broker,
)
from tests.audit.planted.switch import Planted, switch


def _any_signature(text: object, keys: Mapping[KeyId, Check], audience: AudienceId) -> Ticket:
    return _genuine(text, _Anything(keys), audience)


class _Anything(dict[KeyId, Check]):
    """Keys that call every signature genuine."""

    def get(self, key: KeyId, default: object = None) -> Check | None:  # type: ignore[override]
        del default
        return (lambda _message, _signature: True) if key in self else None


_genuine = tickets._genuine


def _any_time(ticket: Ticket, now_ms: int) -> Ticket:
    del now_ms
    return ticket


def _any_namespace(
    text: object,
    *,
    keys: Mapping[KeyId, Check],
    now_ms: int,
    audience: AudienceId,
    namespace: Fingerprint,
) -> Ticket:
    del namespace
    return verify_for_broker(text, keys=keys, now_ms=now_ms, audience=audience)


def _any_group(text: object, keys: Mapping[KeyId, Check], audience: AudienceId) -> Ticket:
    del audience
    return _genuine(text, keys, tickets._parse(text)[0].audience)


def _any_text(ticket: Ticket, token_ids: Sequence[int]) -> int:
    ends = [grant.end for grant in ticket.grants if grant.end is not None]
    return sum(end <= len(token_ids) for end in ends)


def _any_number(ledger: UseLedger, ticket: Ticket, now_ms: int) -> bool:
    del ledger, ticket, now_ms
    return True


def _no_fence(fences: Fences, scope: ScopeId) -> int:
    del fences, scope
    return 0


def _one_tag(tags: IsolatedTags, start: int, end: int) -> str:
    del tags, start, end
    return "isolated"


PLANTED = {
    "signature_not_checked": Planted(
        "a ticket with any signature is genuine",
        "isolation.tickets.altered",
        switch(tickets, _genuine=_any_signature),
    ),
    "expiry_not_checked": Planted(
        "a ticket holds for ever",
        "isolation.tickets.expired",
        switch(tickets, _in_time=_any_time),
    ),
    "digest_not_checked": Planted(
        "a grant holds for other tokens than it was given for",
        "isolation.tickets.for_other_tokens",
        switch(enforcement, matching_grants=_any_text),
    ),
    "uses_not_counted": Planted(
        "a ticket serves any number of sequences",
        "isolation.tickets.used_up",
        switch(UseLedger, take=_any_number),
    ),
    "namespace_not_checked": Planted(
        "a ticket for engines of another model holds",
        "isolation.tickets.for_another_model",
        switch(enforcement, verify=_any_namespace),
    ),
    "group_not_checked": Planted(
        "a ticket for another group of engines holds",
        "isolation.tickets.for_other_engines",
        switch(tickets, _genuine=_any_group),
    ),
    "fences_not_checked": Planted(
        "a ticket from before a revocation still holds",
        "isolation.tickets.from_before_a_revocation",
        switch(Fences, __getitem__=_no_fence),
    ),
    "shares_without_ticket": Planted(
        "requests without a ticket share with each other",
        "isolation.tickets.absent",
        switch(IsolatedTags, tag=_one_tag),
    ),
}
