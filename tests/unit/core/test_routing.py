"""Which instance gets a request, what is counted while it is there, what prefixes are called."""

from __future__ import annotations

import pytest

from scopekv.core.circuit import Circuit, CircuitLimits
from scopekv.core.fetching import Run
from scopekv.core.prefixes import (
    MARK_TOKENS,
    Mark,
    PrefixesInFlight,
    SentPrefixes,
    Stretch,
    marks,
)
from scopekv.core.reasons import RouteReason
from scopekv.core.reservations import InstanceLoad, Outcome, Reservation
from scopekv.core.routing import CachedThere, Candidate, choose
from scopekv.core.speeds import PrefillCurve, TierSpeed
from scopekv.errors import Misuse

CURVE = PrefillCurve(0.0, 0.001, 0.0)  # 1,000 tokens a second
KEY = bytes(32)
ORG = ("org", "acme")


def candidate(
    name: str,
    *,
    queue: float = 0.0,
    flight: int = 0,
    cached: int | None = 0,
    crowd: int = 0,
    curve: PrefillCurve = CURVE,
    runs: tuple[Run, ...] = (),
) -> Candidate:
    there = None if cached is None else CachedThere(cached, runs, 32, 1000)
    return Candidate(name, queue, flight, curve, there, crowd)


def chosen(*candidates: Candidate, total: int = 1000, tie: float = 0.0) -> tuple[str, RouteReason]:
    choice = choose(candidates, total, tie)
    return choice.name, choice.reason


def test_the_only_candidate_is_taken_whatever_it_costs() -> None:
    assert chosen(candidate("a", queue=99.0)) == ("a", RouteReason.ONLY_CANDIDATE)


def test_a_prefix_attracts_until_the_queue_there_costs_more_than_computing_it() -> None:
    other = candidate("b")
    assert chosen(candidate("a", cached=800, queue=0.7), other) == ("a", RouteReason.PREFIX_HERE)
    assert chosen(candidate("a", cached=800, queue=0.9), other) == ("b", RouteReason.SHORTER_QUEUE)


def test_the_worked_choice_of_the_documentation() -> None:
    """docs/routing.md: 4,000 tokens; a has 3,500 of them and 2 s of queue, b has none and none."""
    curve = PrefillCurve(0.010, 0.001, 0.0)
    a = candidate("a", cached=3500, queue=2.0, flight=5, curve=curve)
    b = candidate("b", queue=0.0, curve=curve)
    choice = choose([a, b], 4000, 0.0)
    assert (choice.name, choice.reason) == ("a", RouteReason.PREFIX_HERE)
    assert choice.expected_seconds == pytest.approx(2.51)
    assert choice.prefill_seconds == pytest.approx(0.51)
    assert chosen(candidate("a", cached=3500, queue=4.0, curve=curve), b, total=4000) == (
        "b",
        RouteReason.SHORTER_QUEUE,
    )


def test_equals_are_told_apart_by_requests_in_flight_and_then_by_dice() -> None:
    assert chosen(candidate("a", flight=2), candidate("b", flight=1)) == (
        "b",
        RouteReason.SHORTER_QUEUE,
    )
    pair = (candidate("a"), candidate("b"))
    assert {chosen(*pair, tie=tie) for tie in (0.0, 0.49)} == {("a", RouteReason.TIE)}
    assert {chosen(*pair, tie=tie) for tie in (0.5, 0.999)} == {("b", RouteReason.TIE)}


def test_a_difference_that_no_estimate_can_tell_is_none() -> None:
    a, b = candidate("a", queue=0.001, flight=0), candidate("b", queue=0.0, flight=3)
    assert chosen(a, b)[0] == "a"


def test_where_the_view_is_unsure_only_load_counts() -> None:
    a, b = candidate("a", cached=None, queue=0.2), candidate("b", cached=None, queue=0.1)
    assert chosen(a, b) == ("b", RouteReason.LOAD_ONLY_UNSURE)


def test_a_faster_instance_wins_an_equal_race() -> None:
    slow = PrefillCurve(0.0, 0.003, 0.0)
    found = chosen(candidate("a", curve=slow), candidate("b"))
    assert found == ("b", RouteReason.FASTER_PREFILL)


def test_what_a_tier_holds_counts_as_far_as_fetching_it_pays() -> None:
    quick = Run(TierSpeed(0.001, 1e9, samples=9), 31)
    dead = Run(TierSpeed(9.0, 1e3, samples=9), 31)
    untried = Run(TierSpeed(0.001, 1e9), 31)
    choice = choose([candidate("a", runs=(quick,)), candidate("b")], 1000, 0.9)
    assert (choice.name, choice.reason) == ("a", RouteReason.PREFIX_IN_TIER)
    assert choice.expected_seconds < 0.02
    for useless in (dead, untried):
        choice = choose([candidate("a", runs=(useless,)), candidate("b")], 1000, 0.9)
        assert (choice.name, choice.reason) == ("b", RouteReason.TIE)


def test_what_comes_to_memory_meanwhile_is_not_fetched_as_well() -> None:
    near, far = TierSpeed(0.001, 1e9, samples=9), TierSpeed(0.1, 1e8, samples=9)
    there = CachedThere(64, (Run(near, 2), Run(far, 5)), 32, 1000)
    assert there.with_coming(10) == there
    assert there.with_coming(170) == CachedThere(170, (Run(far, 4),), 32, 1000)
    assert there.with_coming(999).runs == ()


def test_the_worked_choice_with_a_tier_of_the_documentation() -> None:
    """docs/routing.md: the same prompt; a has 3,500 tokens on its disk, b has 1,000 in memory."""
    curve = PrefillCurve(0.010, 0.001, 0.0)
    disk = Run(TierSpeed(0.002, 1e9, samples=9, spread=1.2), 109)
    a = Candidate("a", 0.0, 0, curve, CachedThere(0, (disk,), 32, 1 << 20))
    b = candidate("b", cached=1000, curve=curve)
    choice = choose([a, b], 4000, 0.0)
    assert (choice.name, choice.reason) == ("a", RouteReason.PREFIX_IN_TIER)
    assert choice.expected_seconds == pytest.approx(0.638, abs=0.001)
    assert choice.cached_tokens == 109 * 32
    assert choose([b], 4000, 0.0).expected_seconds == pytest.approx(3.01)


def test_a_hot_prefix_leaves_an_instance_that_holds_its_share() -> None:
    warm = candidate("a", cached=900, crowd=30, queue=0.1, flight=30)
    cold = candidate("b", crowd=18, flight=18)
    assert chosen(warm, cold) == ("b", RouteReason.HOT_PREFIX)
    few = candidate("a", cached=900, crowd=7, queue=0.1, flight=7)
    assert chosen(few, candidate("b")) == ("a", RouteReason.PREFIX_HERE)


def test_what_is_cached_whole_still_takes_its_last_token() -> None:
    choice = choose([candidate("a", cached=1000), candidate("b")], 1000, 0.0)
    assert choice.cached_tokens == 999
    assert choice.prefill_seconds == pytest.approx(0.001)


def test_nobody_and_no_dice_are_refused() -> None:
    with pytest.raises(Misuse):
        choose([], 1, 0.0)
    with pytest.raises(Misuse):
        choose([candidate("a")], 1, 1.0)


# Reservations.


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
    for _ in range(30):
        measure(3.0)
    assert load.curve().seconds(0, 1000) == pytest.approx(3.0, rel=0.15)
    for one in decoding:
        load.done(one, now)
    assert load.curve().seconds(0, 1000) == pytest.approx(1.0, rel=0.3)


# Prefixes.


def test_marks_of_prompts_that_begin_alike_begin_alike() -> None:
    stretches = [Stretch(300, ORG, 1), Stretch(None, ("user", "acme", "alice"), 1)]
    one = marks(bytes(4 * 1000), stretches, KEY)
    other = marks(bytes(4 * 700) + b"\1" * 1200, stretches, KEY)
    assert [mark.end for mark in one] == [256, 300, 512, 768]
    assert [a.id == b.id for a, b in zip(one, other, strict=True)] == [True, True, True, False]


def test_equal_tokens_in_other_scopes_or_epochs_have_other_marks() -> None:
    tokens = bytes(4 * MARK_TOKENS)
    scopes = [("user", "acme", "alice"), ("user", "acme", "ann"), ("user", "globex", "alice")]
    found = {marks(tokens, [Stretch(None, scope, 1)], KEY) for scope in scopes}
    found.add(marks(tokens, [Stretch(None, scopes[0], 2)], KEY))
    found.add(marks(tokens, [Stretch(None, scopes[0], 1)], bytes(31) + b"x"))
    assert len(found) == 5


def prompt(*names: str) -> list[Mark]:
    return [
        Mark((i + 1) * MARK_TOKENS, marks(bytes(1024), [Stretch(None, (n,), 0)], KEY)[0].id)
        for i, n in enumerate(names)
    ]


def test_the_memory_of_what_was_sent_is_a_prefix_bounded_and_forgets() -> None:
    memory = SentPrefixes(marks_max=4)
    memory.sent("a", prompt("1", "2", "3"))
    memory.sent("b", prompt("1", "x"))
    assert memory.tokens(prompt("1", "2", "9")) == {"a": 512, "b": 256}
    memory.forget("a")
    assert memory.tokens(prompt("1", "2")) == {"b": 256}
    for number in range(100):
        memory.sent("a", prompt(f"n{number}"))
    assert len(memory) == 4
    assert memory.tokens(prompt("1")) == {}


def test_prefixes_in_flight_are_counted_up_and_down() -> None:
    flight = PrefixesInFlight()
    for name in ("a", "a", "b"):
        flight.placed(name, prompt("1", "2"))
    flight.placed("b", prompt("1"))
    end, counts = flight.hot(prompt("1", "2", "3"), 3)
    assert (end, dict(counts)) == (512, {"a": 2, "b": 1})
    assert flight.hot(prompt("1", "2"), 4)[0] == 256
    assert flight.tokens(prompt("1", "2", "3")) == {"a": 512, "b": 512}
    for name in ("a", "a", "b"):
        flight.ended(name, prompt("1", "2"))
    flight.ended("b", prompt("1"))
    assert len(flight) == 0


# The circuit.


def test_a_circuit_opens_after_failures_in_a_row_and_closes_after_one_success() -> None:
    circuit = Circuit(CircuitLimits(failures=2, first_seconds=1, longest_seconds=3))
    assert not circuit.failed(0.0)
    circuit.worked()
    assert not circuit.failed(1.0)
    assert circuit.failed(2.0)
    assert not circuit.allows(2.9)
    assert circuit.allows(3.0)
    circuit.begins(3.0)
    assert not circuit.allows(3.1), "one probe at a time"
    circuit.failed(3.2)
    assert not circuit.allows(5.1), "and a longer wait after it"
    assert circuit.allows(5.2)
    circuit.worked()
    assert circuit.allows(5.3)
    assert not circuit.open


def test_a_probe_that_nobody_reports_on_does_not_hold_the_circuit_open() -> None:
    circuit = Circuit(CircuitLimits(failures=1, probe_seconds=10))
    circuit.failed(0.0)
    circuit.begins(1.0)
    assert not circuit.allows(10.9)
    assert circuit.allows(11.0)
