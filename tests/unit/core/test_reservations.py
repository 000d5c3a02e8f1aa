"""What is placed at an instance and not done yet, and how fast it is learned to be."""

from __future__ import annotations

import pytest

from scopekv.core.reservations import InstanceLoad, Outcome, Reservation


def placed(load: InstanceLoad, now: float, seconds: float, *, streams: bool = True) -> Reservation:
    return load.place(
        now, total_tokens=1000, cached_tokens=0, prefill_seconds=seconds, streams=streams
    )


def test_a_queue_is_what_is_left_of_all_that_was_placed() -> None:
    load = InstanceLoad()
    one, two = placed(load, 0.0, 1.0), placed(load, 0.0, 0.5)
    assert load.queue_seconds(0.0) == pytest.approx(1.5)
    assert load.queue_seconds(0.4) == pytest.approx(1.1)
    load.first_token(one, 0.8)
    assert load.queue_seconds(0.8) == pytest.approx(0.5)
    assert (load.waiting, load.decoding, load.in_flight) == (1, 1, 2)
    load.done(one, 2.0)
    load.done(two, 2.0)
    load.done(two, 3.0)
    assert (load.queue_seconds(3.0), load.in_flight) == (0.0, 0)


def test_what_is_late_gets_dearer() -> None:
    load = InstanceLoad()
    placed(load, 0.0, 1.0)
    assert load.queue_seconds(5.0) == pytest.approx(4.0)


def test_a_whole_answer_counts_as_decoding_once_its_prefill_should_be_over() -> None:
    load = InstanceLoad()
    placed(load, 0.0, 1.0, streams=False)
    placed(load, 0.0, 1.0, streams=False)
    assert load.queue_seconds(1.5) == pytest.approx(0.5)
    assert (load.waiting, load.decoding) == (1, 1)


def test_speed_is_learned_from_streams_and_from_whole_answers() -> None:
    for streams in (True, False):
        load, now = InstanceLoad(), 0.0
        for _ in range(30):
            one = placed(load, now, 1.0, streams=streams)
            if streams:
                load.first_token(one, now + 2.0)
            load.done(one, now + 2.0 + 0.01 * 9, Outcome(1000, 0, 10 if streams else 1))
            now += 10
        assert load.curve().seconds(0, 1000) == pytest.approx(2.0, rel=0.06)


def test_prefill_beside_decoding_requests_is_learned_to_be_slower() -> None:
    load, now = InstanceLoad(), 0.0

    def measure(seconds: float) -> None:
        nonlocal now
        one = placed(load, now, 1.0)
        load.first_token(one, now + seconds)
        load.done(one, now + seconds, Outcome(1000, 0, 1))
        now += 10

    for _ in range(20):
        measure(1.0)
    decoding = [placed(load, now, 0.0) for _ in range(4)]
    for one in decoding:
        load.first_token(one, now)
    seen = []
    for _ in range(30):
        measure(3.0)
        seen.append(load.curve().seconds(0, 1000))
    assert seen == sorted(set(seen))  # every answer is heard of at once
    assert seen[-1] == pytest.approx(3.0, rel=0.15)
    for one in decoding:
        load.done(one, now)
    assert load.curve().seconds(0, 1000) == pytest.approx(1.0, rel=0.3)
