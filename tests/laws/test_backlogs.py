"""Laws of several gateways' loads: never negative, never one's own, gone when nobody says so."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scopekv.core.backlogs import (
    LIFE_SECONDS,
    NOTHING,
    SENDERS_MAX,
    Backlog,
    Backlogs,
    read_backlog,
)
from scopekv.core.reservations import InstanceLoad, Outcome, Reservation

A, B, C = (letter * 16 for letter in (b"a", b"b", b"c"))
backlogs = st.builds(
    Backlog,
    st.integers(0, 10**6).map(lambda ms: ms / 1000),
    st.integers(0, 999),
    st.integers(0, 999),
)
words = st.tuples(st.sampled_from([A, B, C]), backlogs, st.floats(0, 4))
steps = st.lists(
    st.tuples(
        st.sampled_from(["place", "first", "done", "wait", "look"]),
        st.integers(0, 9),
        st.floats(0, 5),
        st.booleans(),
    ),
    max_size=60,
)


def header(sender: bytes, backlog: Backlog) -> bytes:
    return sender + b" " + backlog.written()


@given(backlogs)
def test_a_backlog_is_read_as_it_was_written(backlog: Backlog) -> None:
    assert read_backlog(backlog.written()) == backlog


@given(st.none() | st.binary(max_size=60))
def test_what_is_no_backlog_says_nothing_and_is_no_error(text: bytes | None) -> None:
    board = Backlogs()
    if board.told(text, 0.0) is None:
        assert len(board) == 0
    assert read_backlog(text).queue_seconds >= 0


@given(st.lists(words, max_size=30))
def test_others_are_the_last_words_of_everybody_else_less_what_was_worked_off(
    told: list[tuple[bytes, Backlog, float]],
) -> None:
    """Against the obvious version: all words kept, the latest of each sender looked for."""
    board, now = Backlogs(), 0.0
    history: list[tuple[bytes, Backlog, float]] = []
    for sender, backlog, seconds in told:
        now += seconds
        assert board.told(header(sender, backlog), now) == sender
        history.append((sender, backlog, now))
        for asking in (A, B, C):
            last = {s: (b, at) for s, b, at in history if s != asking and at > now - LIFE_SECONDS}
            found = board.others(asking, now)
            left = sum(max(0.0, b.queue_seconds - (now - at)) for b, at in last.values())
            assert found.queue_seconds == pytest.approx(left)
            assert found.waiting == sum(b.waiting for b, _ in last.values())
            assert found.decoding == sum(b.decoding for b, _ in last.values())


@given(st.lists(st.tuples(backlogs, st.floats(0, 9)), max_size=20))
def test_a_gateway_alone_hears_of_nothing_whatever_it_says_and_when(
    told: list[tuple[Backlog, float]],
) -> None:
    """No skew between its own books and the engine's can turn into somebody else's load."""
    board, now = Backlogs(), 0.0
    for backlog, seconds in told:
        board.told(header(A, backlog), now)
        now += seconds
        assert board.others(A, now) == NOTHING


def test_who_says_nothing_any_more_is_forgotten_and_memory_is_bounded() -> None:
    board = Backlogs()
    board.told(header(A, Backlog(100.0, 7, 7)), 0.0)
    assert board.others(B, LIFE_SECONDS - 0.1).waiting == 7
    assert board.others(B, LIFE_SECONDS) == NOTHING
    for number in range(3 * SENDERS_MAX):
        board.told(header(b"%016x" % number, Backlog(1.0, 1, 0)), 10.0)
        assert len(board) <= SENDERS_MAX


@given(steps, backlogs)
def test_own_counts_are_the_same_whatever_is_heard_and_alone_all_is_as_before(
    steps: list[tuple[str, int, float, bool]], others: Backlog
) -> None:
    """`alone` is told that nobody else is there, `never` is told nothing, `busy` of others."""
    alone, never, busy = (InstanceLoad() for _ in range(3))
    open_ones: list[list[Reservation]] = []
    now, heard_at = 0.0, 0.0
    for act, which, amount, streams in steps:
        if act == "look":
            alone.heard(NOTHING, now)
            busy.heard(others, now)
            heard_at = now
        elif act == "wait":
            now += amount
        elif act == "place":
            open_ones.append(
                [
                    load.place(
                        now,
                        total_tokens=1000,
                        cached_tokens=0,
                        prefill_seconds=amount,
                        streams=streams,
                    )
                    for load in (alone, never, busy)
                ]
            )
        elif open_ones:
            ones = open_ones[which % len(open_ones)]
            for load, one in zip((alone, never, busy), ones, strict=True):
                if act == "first":
                    load.first_token(one, now)
                else:
                    load.done(one, now, Outcome(1000, 0, 2))
            if act == "done":
                open_ones.remove(ones)
        assert alone.in_flight == never.in_flight == busy.in_flight == len(open_ones)
        assert alone.queue_seconds(now) == never.queue_seconds(now) == alone.own(now).queue_seconds
        assert alone.curve() == never.curve()
        assert alone.in_flight_of_all == never.in_flight
        theirs = busy.queue_seconds(now) - busy.own(now).queue_seconds
        assert -1e-6 <= theirs <= others.after(now - heard_at) + 1e-6


def test_a_request_behind_others_is_not_late_while_they_have_their_turn() -> None:
    load = InstanceLoad()
    load.heard(Backlog(10.0, 5, 0), 0.0)
    load.place(0.0, total_tokens=100, cached_tokens=0, prefill_seconds=0.5, streams=True)
    assert load.own(8.0).queue_seconds == 0.5
    assert load.queue_seconds(8.0) == pytest.approx(2.5)
    assert load.queue_seconds(10.25) == pytest.approx(0.25)


def test_a_time_behind_others_teaches_no_speed() -> None:
    for before in (True, False):  # heard of before it was placed, or with its answer
        load = InstanceLoad()
        if before:
            load.heard(Backlog(3.0, 1, 0), 0.0)
        one = load.place(0.0, total_tokens=1000, cached_tokens=0, prefill_seconds=0.1, streams=True)
        load.heard(Backlog(3.0, 1, 0), 0.1, one)
        load.first_token(one, 3.0)
        load.done(one, 3.0, Outcome(1000, 0, 1))
        assert load.samples == 0
