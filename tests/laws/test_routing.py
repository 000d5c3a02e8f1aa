"""Laws of routing: deterministic, no pile-up, nothing counted twice or lost, no false affinity."""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from scopekv.core.prefixes import MARK_TOKENS, PrefixesInFlight, SentPrefixes, Stretch, marks
from scopekv.core.reasons import RouteReason
from scopekv.core.reservations import InstanceLoad, Reservation
from scopekv.core.routing import (
    CROWD_FREE,
    SAME_FRACTION,
    SAME_SECONDS,
    CachedThere,
    Candidate,
    choose,
)
from scopekv.core.speeds import PrefillCurve
from scopekv.core.turns import Turns

KEY = bytes(range(32))
seconds = st.floats(0, 100)
ties = st.floats(0, 1, exclude_max=True)
curves = st.builds(PrefillCurve, st.floats(0, 0.1), st.floats(1e-6, 0.01), st.floats(0, 1e-7))
candidates = st.builds(
    Candidate,
    st.just(""),
    seconds,
    st.integers(0, 50),
    curves,
    st.none() | st.integers(0, 5000).map(CachedThere),
    st.integers(0, 60),
)
fleets = st.lists(candidates, min_size=1, max_size=6).map(
    lambda made: [replace(c, name=f"i{n}") for n, c in enumerate(made)]
)


def expected(candidate: Candidate, total: int) -> float:
    """The obvious version."""
    cached = min(candidate.cached.tokens if candidate.cached else 0, total - 1)
    return candidate.queue_seconds + candidate.curve.seconds(cached, total)


@given(fleets, st.integers(1, 5000), ties)
def test_the_choice_is_deterministic_and_gives_its_own_figures(
    fleet: list[Candidate], total: int, tie: float
) -> None:
    choice = choose(fleet, total, tie)
    assert choice == choose(list(fleet), total, tie)
    (chosen,) = [c for c in fleet if c.name == choice.name]
    assert choice.expected_seconds == expected(chosen, total)
    assert 0 <= choice.cached_tokens < total


@given(fleets, st.integers(1, 5000), ties)
def test_nobody_gives_the_first_token_tellably_sooner_unless_the_prefix_is_hot(
    fleet: list[Candidate], total: int, tie: float
) -> None:
    choice = choose(fleet, total, tie)
    crowded = max(candidate.crowd for candidate in fleet) >= CROWD_FREE
    least = min(expected(candidate, total) for candidate in fleet)
    if not crowded:
        assert choice.expected_seconds <= least + max(SAME_FRACTION * least, SAME_SECONDS)
        assert choice.reason is not RouteReason.HOT_PREFIX


@given(fleets, st.integers(1, 5000), st.integers(0, 5000), ties)
def test_more_of_the_prompt_cached_never_makes_an_instance_dearer(
    fleet: list[Candidate], total: int, more: int, tie: float
) -> None:
    choice = choose(fleet, total, tie)
    (chosen,) = [c for c in fleet if c.name == choice.name]
    there = CachedThere((chosen.cached.tokens if chosen.cached else 0) + more)
    assert expected(replace(chosen, cached=there), total) <= choice.expected_seconds + 1e-12


@given(
    st.integers(2, 6),
    st.integers(1, 60),
    st.integers(1, 4000),
    st.integers(1, 200),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_a_burst_on_one_prefix_is_spread_over_all(
    instances: int, burst: int, prefix: int, rest: int, warm: bool, dice: random.Random
) -> None:
    """R1: no instance holds more than 1.2 times its share, or CROWD_FREE requests."""
    curve = PrefillCurve(0.005, 0.001, 1e-9)
    loads = [InstanceLoad() for _ in range(instances)]
    has = [warm and number == 0 for number in range(instances)]
    crowd = [0] * instances
    total = prefix + rest
    for _ in range(burst):
        hot = sum(crowd) >= CROWD_FREE
        fleet = [
            Candidate(
                str(i),
                loads[i].queue_seconds(0.0),
                loads[i].in_flight,
                curve,
                CachedThere(prefix if has[i] else 0),
                crowd[i] if hot else 0,
            )
            for i in range(instances)
        ]
        choice = choose(fleet, total, dice.random())
        i = int(choice.name)
        loads[i].place(
            0.0,
            total_tokens=total,
            cached_tokens=choice.cached_tokens,
            prefill_seconds=choice.prefill_seconds,
            streams=True,
        )
        crowd[i] += 1
        has[i] = True
    assert max(crowd) <= max(CROWD_FREE, 1.2 * burst / instances + 1)


steps = st.lists(
    st.tuples(
        st.sampled_from(["place", "first", "done", "wait"]),
        st.integers(0, 9),
        st.floats(0, 5),
        st.booleans(),
    ),
    max_size=60,
)


@given(steps)
def test_what_is_placed_is_waiting_or_decoding_until_it_is_done(
    steps: list[tuple[str, int, float, bool]],
) -> None:
    load, open_ones, now = InstanceLoad(), list[Reservation](), 0.0
    for act, which, amount, streams in steps:
        if act == "place":
            made = load.place(
                now, total_tokens=10, cached_tokens=0, prefill_seconds=amount, streams=streams
            )
            open_ones.append(made)
        elif act == "wait":
            now += amount
        elif open_ones:
            one = open_ones[which % len(open_ones)]
            if act == "first":
                load.first_token(one, now)
            else:
                load.done(one, now)
                open_ones.remove(one)
        assert load.queue_seconds(now) >= 0
        assert load.in_flight == load.waiting + load.decoding == len(open_ones)
    for one in open_ones:
        load.done(one, now)
    assert (load.in_flight, load.queue_seconds(now)) == (0, 0.0)


@given(st.integers(1, 40_000), st.integers(0, 3000), st.none() | st.integers(1, 9000))
def test_prompts_that_begin_alike_share_all_marks_up_to_where_they_part(
    common: int, more: int, end: int | None
) -> None:
    stretches = [Stretch(None, ("user", "u"), 1)]
    if end is not None:
        stretches.insert(0, Stretch(end, ("org", "o"), 1))
    one = marks(bytes(4 * common), stretches, KEY)
    other = marks(bytes(4 * common) + b"\1" * 4 * more, stretches, KEY)
    ends = [mark.end for mark in one]
    assert ends == sorted(set(ends))
    aligned = [
        mark for mark in one if end is None or mark.end <= min(end, common - 1) or common > end
    ]
    assert [m for m in aligned if m in other] == aligned
    assert all(b - a <= max(MARK_TOKENS, a / 7) for a, b in zip([0, *ends], ends, strict=False))


names = st.sampled_from(["alice", "ann", "bob"])


@given(names, names, st.binary(min_size=4 * MARK_TOKENS, max_size=4 * 700), st.integers(0, 2))
def test_distinct_scopes_never_share_a_mark(
    one: str, other: str, tokens: bytes, epoch: int
) -> None:
    """R2: equal private prompts of two callers have no prefix in common."""
    made = [marks(tokens, [Stretch(None, ("user", "acme", n), epoch)], KEY) for n in (one, other)]
    shared = {mark.id for mark in made[0]} & {mark.id for mark in made[1]}
    assert bool(shared) is (one == other)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.binary(min_size=1024, max_size=3072))))
def test_prefixes_in_flight_end_with_their_requests(sent: list[tuple[str, bytes]]) -> None:
    flight, memory = PrefixesInFlight(), SentPrefixes(marks_max=8)
    made = [(name, marks(tokens, [Stretch(None, ("org", "x"), 0)], KEY)) for name, tokens in sent]
    for name, prompt in made:
        flight.placed(name, prompt)
        memory.sent(name, prompt)
        assert flight.tokens(prompt)[name] == prompt[-1].end
        assert len(memory) <= 8
    for name, prompt in made:
        flight.ended(name, prompt)
    assert len(flight) == 0


@given(st.integers(0, 12), st.lists(st.sampled_from("abcd"), max_size=60), st.integers(0, 99))
def test_lines_are_bounded_and_every_organisation_keeps_its_share(
    most: int, arrivals: list[str], seed: int
) -> None:
    turns: Turns[int] = Turns(most)
    inside: dict[int, str] = {}
    dice = random.Random(seed)
    for number, org in enumerate(arrivals):
        gone = turns.join(org, number)
        if gone != number:
            inside[number] = org
        if gone is not None and gone != number:
            assert inside.pop(gone) != org
        if gone == number:  # refused: nobody has two more than it
            held = list(inside.values())
            assert all(held.count(o) <= held.count(org) + 1 for o in set(held))
        if inside and dice.random() < 0.2:
            some = dice.choice(sorted(inside))
            turns.leave(inside.pop(some), some)
        assert len(turns) == len(inside) <= most
    served = [turns.next() for _ in range(len(turns))]
    assert sorted(served) == sorted(inside)  # type: ignore[type-var]
    assert turns.next() is None
