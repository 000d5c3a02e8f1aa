"""Sessions end in time, are bounded, and nobody's displaces another key's needlessly."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from scopekv.console.sessions import IDLE_SECONDS, LIFE_SECONDS, PER_KEY_MAX, Sessions


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@given(st.lists(st.floats(0, 2 * IDLE_SECONDS), max_size=30))
def test_a_session_ends_when_idle_or_old(pauses: list[float]) -> None:
    clock = Clock()
    sessions = Sessions(clock)
    session = sessions.open(b"key")
    alive = True
    for pause in pauses:
        clock.now += pause
        alive = alive and pause < IDLE_SECONDS and clock.now < LIFE_SECONDS
        assert (sessions.get(session.id) is not None) == alive


def test_use_does_not_keep_a_session_for_ever() -> None:
    clock = Clock()
    sessions = Sessions(clock)
    session = sessions.open(b"key")
    while clock.now + IDLE_SECONDS / 2 < LIFE_SECONDS:
        clock.now += IDLE_SECONDS / 2
        assert sessions.get(session.id) is session
    clock.now = LIFE_SECONDS
    assert sessions.get(session.id) is None


def test_one_key_has_few_sessions_and_the_newest() -> None:
    sessions = Sessions(Clock())
    other = sessions.open(b"other")
    opened = [sessions.open(b"key") for _ in range(3 * PER_KEY_MAX)]
    kept = [one for one in opened if sessions.get(one.id)]
    assert kept == opened[-PER_KEY_MAX:]
    assert sessions.get(other.id) is other


def test_ids_and_secrets_are_each_their_own() -> None:
    sessions = Sessions(Clock())
    one, other = sessions.open(b"key"), sessions.open(b"key")
    assert len({one.id, other.id, one.form_secret, other.form_secret}) == 4
    assert one.own_form(one.form_secret)
    assert not one.own_form(other.form_secret)
    assert not one.own_form("")
    assert one.id not in repr(one)


def test_a_notice_is_shown_once() -> None:
    session = Sessions(Clock()).open(b"key")
    session.notice = "done"
    assert (session.take_notice(), session.take_notice()) == ("done", "")
