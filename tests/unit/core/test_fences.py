"""Fences stand without a gap, and cost the same however many there are."""

from __future__ import annotations

import threading

from scopekv.core.chains import Link
from scopekv.core.fences import LIFE_MS, Fences
from scopekv.core.scopes import ScopeId


def scope(number: int) -> ScopeId:
    return ScopeId(number.to_bytes(16, "big"))


def test_a_fence_rises_and_never_falls() -> None:
    fences = Fences()
    fences.raise_above([Link(scope(1), 4)], 0)
    fences.raise_above([Link(scope(1), 2)], 1)
    assert fences[scope(1)] == 5
    assert scope(2) not in fences


def test_a_fence_that_stands_is_seen_at_every_moment() -> None:
    fences = Fences()
    fences.raise_above([Link(scope(1), 4)], 0)
    stop = threading.Event()

    def raise_again() -> None:
        while not stop.is_set():
            fences.raise_above([Link(scope(1), 4), Link(scope(2), 1)], 1)

    thread = threading.Thread(target=raise_again)
    thread.start()
    try:
        assert all(fences.get(scope(1), 0) == 5 for _ in range(50_000))
    finally:
        stop.set()
        thread.join()


def test_a_fence_goes_when_no_ticket_of_before_can_be_left() -> None:
    fences = Fences()
    fences.raise_above([Link(scope(1), 1)], 0)
    fences.raise_above([Link(scope(2), 1)], LIFE_MS)
    assert len(fences) == 2
    fences.raise_above([Link(scope(2), 1)], LIFE_MS + 1)
    assert list(fences) == [scope(2)]


def test_a_hundred_thousand_fences_are_raised_in_one_pass() -> None:
    fences = Fences()
    links = [Link(scope(number), 0) for number in range(100_000)]
    fences.raise_above(links, 0)
    fences.raise_above(links, 1)
    assert len(fences) == 100_000
