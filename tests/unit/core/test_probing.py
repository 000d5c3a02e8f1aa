"""Probing: ordinary workloads raise no alarm, probers are caught within as many near misses."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from scopekv.core.encoding import encode_tokens
from scopekv.core.probing import (
    MARKS_MAX,
    PREFIX_TOKENS_MIN,
    CallerId,
    ProbeKind,
    ProbeLimits,
    ProbeWatch,
)
from scopekv.errors import Misuse

SEEDS = range(20)
LIMITS = ProbeLimits()
VOCABULARY = 50_000


@dataclass(frozen=True)
class Sent:
    """One prompt: whose, its tokens, where its segments end, seconds since the last one."""

    caller: str
    tokens: list[int]
    ends: tuple[int, ...] = ()
    pause: float = 0.5


class Watch:
    """A watch, fed with prompts. `alarms`: who was noticed, and as what."""

    def __init__(self, limits: ProbeLimits = LIMITS) -> None:
        self.watch = ProbeWatch(limits, bytes(32))
        self.alarms: list[tuple[str, ProbeKind]] = []
        self.now = 0.0

    def feed(self, sent: Sent) -> bool:
        """Whether this one raised an alarm."""
        self.now += sent.pause
        name = CallerId(sent.caller.encode())
        kind = self.watch.look(name, encode_tokens(sent.tokens), sent.ends, self.now)
        if kind is not None:
            self.alarms.append((sent.caller, kind))
        return kind is not None


Workload = Callable[[random.Random], Iterator[Sent]]


def text(dice: random.Random, count: int) -> list[int]:
    return [dice.randrange(VOCABULARY) for _ in range(count)]


def chats(dice: random.Random) -> Iterator[Sent]:
    """Conversations under one system prompt that grow, are edited, and are sampled again."""
    system = text(dice, 180)
    open_chats = [(f"user {n % 10}", [*system, *text(dice, 40)]) for n in range(30)]
    for _ in range(400):
        at = dice.randrange(len(open_chats))
        caller, tokens = open_chats[at]
        kind = dice.random()
        if kind < 0.1:
            tokens = tokens[: max(200, len(tokens) - dice.randrange(1, 80))]
        if kind < 0.9:
            tokens = [*tokens, *text(dice, dice.randrange(10, 120))]
        open_chats[at] = (caller, tokens)
        yield Sent(caller, tokens, (len(system),))


def questions(dice: random.Random) -> Iterator[Sent]:
    """Many short questions about few public documents, after glue and a leading phrase."""
    documents = [text(dice, dice.randrange(200, 2000)) for _ in range(4)]
    glue = text(dice, 12)
    for _ in range(400):
        document = dice.choice(documents)
        tokens = [*document, *glue, *text(dice, dice.randrange(4, 60))]
        yield Sent(f"user {dice.randrange(8)}", tokens, (len(document),))


def agents(dice: random.Random) -> Iterator[Sent]:
    """Loops whose tools and instructions are alike, with branches tried from one state."""
    tools = text(dice, 700)
    for run in range(30):
        tokens = [*tools, *text(dice, 60)]
        for _ in range(12):
            tokens = [*tokens, *text(dice, dice.randrange(20, 150))]
            for _ in range(dice.choice((1, 1, 4))):
                yield Sent(f"agent {run % 5}", [*tokens, *text(dice, 30)], (len(tools),))


def templates(dice: random.Random) -> Iterator[Sent]:
    """A form that is nobody's document, filled in by a few people in turn."""
    form = text(dice, 500)
    for _ in range(300):
        yield Sent(f"user {dice.randrange(5)}", [*form, *text(dice, 25)])


def pasted(dice: random.Random) -> Iterator[Sent]:
    """Two colleagues paste the same unpublished text: one asks once, the other often."""
    document = text(dice, 900)
    yield Sent("alice", [*document, *text(dice, 100)])
    for _ in range(LIMITS.siblings_max - 2):
        yield Sent("bob", [*document, *text(dice, 100)], pause=9.0)


@pytest.mark.parametrize("workload", [chats, questions, agents, templates, pasted])
@pytest.mark.parametrize("seeds", [range(3), pytest.param(range(3, 40), marks=pytest.mark.slow)])
def test_ordinary_work_raises_no_alarm(workload: Workload, seeds: range) -> None:
    for seed in seeds:
        watch = Watch()
        for sent in workload(random.Random(seed)):
            watch.feed(sent)
        assert watch.alarms == [], f"seed {seed}"


@pytest.mark.parametrize("seed", SEEDS)
def test_who_follows_many_prompts_of_others_is_caught(seed: int) -> None:
    """As timing audits do: fresh victims' prompts, 95 % of each, then something else."""
    dice, watch, sent = random.Random(seed), Watch(), 0
    while not watch.alarms and sent < 200:
        secret = text(dice, dice.randrange(200, 600))
        watch.feed(Sent("victim", secret))
        watch.feed(Sent("prober", [*secret[: int(len(secret) * 0.95)], *text(dice, 200)]))
        sent += 1
    assert sent == LIMITS.points_max
    assert watch.alarms == [("prober", ProbeKind.POINTS)]


@pytest.mark.parametrize("seed", SEEDS)
def test_who_guesses_what_comes_next_is_caught(seed: int) -> None:
    dice, watch, sent = random.Random(seed), Watch(), 0
    secret = text(dice, 500)
    watch.feed(Sent("victim", secret))
    while not watch.alarms and sent < 200:
        watch.feed(Sent("prober", [*secret[:300], *text(dice, 64)]))
        sent += 1
    assert sent == LIMITS.siblings_max
    assert watch.alarms == [("prober", ProbeKind.SIBLINGS)]


def probes(count: int, dice: random.Random, caller: str = "prober") -> Iterator[Sent]:
    for _ in range(count):
        secret = text(dice, 400)
        yield Sent("victim", secret, pause=0.0)
        yield Sent(caller, [*secret[:300], *text(dice, 100)], pause=0.0)


def test_near_misses_count_within_a_window_alone() -> None:
    watch, dice = Watch(ProbeLimits(points_max=3, window_seconds=10)), random.Random(0)
    for sent in probes(2, dice):
        watch.feed(sent)
    watch.now += 11
    for sent in probes(2, dice):
        watch.feed(sent)
    assert not watch.alarms
    for sent in probes(1, dice):
        watch.feed(sent)
    assert len(watch.alarms) == 1


def test_one_alarm_a_window() -> None:
    watch, dice = Watch(ProbeLimits(points_max=2, window_seconds=10)), random.Random(0)
    for sent in probes(50, dice):
        watch.feed(sent)
    assert len(watch.alarms) == 1
    watch.now += 11
    for sent in probes(5, dice):
        watch.feed(sent)
    assert len(watch.alarms) == 2


def test_the_same_near_miss_sent_again_counts_once() -> None:
    watch, dice = Watch(ProbeLimits(points_max=100, siblings_max=2)), random.Random(0)
    secret = text(dice, 400)
    guess = Sent("prober", [*secret[:300], *text(dice, 100)])
    watch.feed(Sent("victim", secret))
    assert not any(watch.feed(guess) for _ in range(20))
    assert watch.feed(Sent("prober", [*secret[:300], *text(dice, 100)]))


def test_a_short_common_prefix_is_nothing() -> None:
    watch, dice = Watch(ProbeLimits(points_max=1, siblings_max=1)), random.Random(0)
    secret = text(dice, 400)
    watch.feed(Sent("victim", secret))
    assert not watch.feed(Sent("prober", [*secret[: PREFIX_TOKENS_MIN - 1], *text(dice, 300)]))
    assert watch.feed(Sent("prober", [*secret[:PREFIX_TOKENS_MIN], *text(dice, 300)]))


def test_memory_is_bounded() -> None:
    limits = ProbeLimits(points_max=1000)
    watch, dice = ProbeWatch(limits, bytes(32), prefixes_max=100, callers_max=5), random.Random(0)
    for number in range(40):
        caller = CallerId(b"%d" % number)
        watch.look(caller, encode_tokens(text(dice, 9000)), (), float(number))
        assert len(watch) <= 105


def test_a_watch_and_its_limits_check_themselves() -> None:
    for wrong in ({"points_max": 0}, {"siblings_max": 0}, {"window_seconds": 0.5}):
        with pytest.raises(Misuse):
            ProbeLimits(**wrong)
    with pytest.raises(Misuse):
        ProbeWatch(LIMITS, bytes(32), prefixes_max=MARKS_MAX - 1)
