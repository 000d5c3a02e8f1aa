"""Laws of the use ledger: no nonce serves more than its uses, and memory has a bound."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from scopekv.core.blocks import Fingerprint
from scopekv.core.replay import SWEEP_MS, UseLedger
from scopekv.core.scopes import Pseudonym, ScopeId
from scopekv.core.tickets import SKEW_MS, AudienceId, Grant, KeyId, Ticket

LAW = settings(deadline=None)
TTL = 10_000
TICKET = Ticket(
    KeyId(bytes(8)),
    0,
    TTL,
    AudienceId(bytes(16)),
    Fingerprint(bytes(32)),
    Pseudonym(bytes(16)),
    bytes(16),
    1,
    (Grant(None, ScopeId(bytes(16)), 0, b""),),
)


def ticket(number: int, uses: int) -> Ticket:
    return replace(TICKET, nonce=number.to_bytes(16, "big"), uses=uses)


# (milliseconds since the last take, nonce); a nonce always comes with the same uses.
takes = st.lists(
    st.tuples(st.sampled_from([0, 1, 500, 1000, 9_000]), st.integers(0, 5)), max_size=40
)


@LAW
@given(takes, st.integers(1, 4), st.integers(1, 6))
def test_no_nonce_serves_more_than_its_uses(
    moves: list[tuple[int, int]], uses: int, limit: int
) -> None:
    """Counted over its life; after that no clock lets the ticket verify."""
    ledger, now = UseLedger(limit), 0
    granted: Counter[int] = Counter()
    first: dict[int, int] = {}
    for pause, number in moves:
        now += pause
        if now - first.setdefault(number, now) >= TTL + 2 * SKEW_MS:
            continue
        if ledger.take(ticket(number, uses), now):
            granted[number] += 1
        assert granted[number] <= uses
        assert len(ledger) <= limit


@LAW
@given(st.integers(1, 50), st.integers(1, 5))
def test_every_use_is_granted_once_and_conserved(uses: int, more: int) -> None:
    """Granted plus refused is asked; granted is exactly `uses`."""
    ledger = UseLedger()
    answers = [ledger.take(ticket(1, uses), at) for at in range(uses + more)]
    assert answers == [True] * uses + [False] * more
    assert len(ledger) == 1


@LAW
@given(st.integers(1, 20), st.integers(1, 20))
def test_a_full_ledger_grants_nothing_new_and_forgets_nothing(limit: int, more: int) -> None:
    ledger = UseLedger(limit)
    assert all(ledger.take(ticket(i, 2), 0) for i in range(limit))
    assert not any(ledger.take(ticket(limit + i, 2), 1) for i in range(more))
    assert all(ledger.take(ticket(i, 2), 2) for i in range(limit))  # known ones go on
    assert not any(ledger.take(ticket(i, 2), 3) for i in range(limit))
    assert len(ledger) == limit


@LAW
@given(st.integers(-SKEW_MS, TTL + SKEW_MS - 1), st.integers(-SKEW_MS, TTL + SKEW_MS - 1))
def test_a_use_outlives_every_time_at_which_its_ticket_verifies(one: int, other: int) -> None:
    ledger, started = UseLedger(), 1_000_000
    first, second = sorted((one, other))
    assert ledger.take(ticket(1, 1), started + first)
    assert not ledger.take(ticket(1, 1), started + second)


def test_used_up_tickets_leave_when_their_time_is_over() -> None:
    ledger, over = UseLedger(2), TTL + 2 * SKEW_MS
    assert ledger.take(ticket(1, 1), 0)
    assert ledger.take(ticket(2, 1), 0)
    assert not ledger.take(ticket(3, 1), over - 1)
    assert ledger.take(ticket(3, 1), over + SWEEP_MS)
    assert len(ledger) == 1
