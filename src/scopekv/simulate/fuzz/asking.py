"""Requests of a world: good ones, ones that drift from their ticket, ones with a bad ticket."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from scopekv.core.tickets import mint
from scopekv.errors import Unavailable
from scopekv.simulate.fuzz.dice import dice as make_dice
from scopekv.simulate.fuzz.flight import Flight
from scopekv.simulate.fuzz.gateway import Decided
from scopekv.simulate.fuzz.oracle import Label, Text
from scopekv.simulate.fuzz.people import labels, prompt
from scopekv.simulate.fuzz.world import World

SESSIONS = ("", "", "", "s1")
OTHER_TOKEN = 7
LATE_SECONDS = (0.02, 0.05, 0.2, 1.0, 12.0)
PROMPTS = 8  # of a world: others ask the same


def ask(world: World) -> None:
    """A request: decided, routed, sent."""
    _ask(world, lambda _, decided: decided.text)


def drift(world: World) -> None:
    """One token is not what the ticket was made for: from that part on, all is private."""
    _ask(world, lambda _, decided: decided.text, drifts=True)


def forge(world: World) -> None:
    """A ticket that an engine must not believe: nothing may be shared."""

    def forged(dice: Random, decided: Decided) -> str | None:
        kind = dice.randrange(4)
        if kind == 0:
            return None
        if kind == 1:
            return mint(decided.ticket, lambda _: bytes(64))
        if kind == 2:
            return decided.text[:-3]
        late = replace(decided.ticket, issued_ms=decided.ticket.issued_ms - 3_600_000)
        return mint(late, world.deployed.sign)

    _ask(world, forged, believed=False)


def _ask(
    world: World,
    ticket: Callable[[Random, Decided], str | None],
    *,
    drifts: bool = False,
    believed: bool = True,
) -> None:
    dice, people = world.dice, list(world.deployed.oracle.people.values())
    person = people[dice.randrange(len(people))]
    session = SESSIONS[dice.randrange(len(SESSIONS))]
    shape = make_dice("prompt", world.seed, dice.randrange(PROMPTS))
    pieces = prompt(world.society.papers, shape)
    number = dice.randrange(len(world.gateways))
    try:
        decided = world.gateways[number].decide(person.name, session, pieces)
    except Unavailable:
        return  # refused: the registry is out of reach
    if decided is None:
        return
    marked = labels(world.deployed, person, session, pieces)
    tokens = [token for piece in pieces for token in piece.tokens]
    if drifts:
        spot = (1, len(tokens) // 2)[dice.randrange(2)]
        tokens[spot] = OTHER_TOKEN
        marked = _drifted(marked, spot, ("user", person.name, session))
    if not believed:
        marked = [(("nobody", str(world.asked)), len(tokens))]
    _send(
        world,
        number,
        decided,
        ticket(dice, decided),
        tokens,
        world.deployed.oracle.texts(marked),
        world.deployed.oracle.allowed(person, session),
    )


def _send(
    world: World,
    number: int,
    decided: Decided,
    written: str | None,
    tokens: list[int],
    texts: tuple[Text, ...],
    allowed: frozenset[Label],
) -> None:
    """Place the request, and let it go its way, late or at once."""
    placed = world.gateways[number].route(tokens, decided.ticket)
    if placed is None:
        return
    engine, cached, seconds = placed
    queue = world.gateways[number].loads[engine]
    now, dice = world.clock.seconds, world.dice
    reservation = queue.place(
        now,
        total_tokens=len(tokens),
        cached_tokens=cached,
        prefill_seconds=seconds,
        streams=True,
    )
    world.asked += 1
    world.send(
        Flight(
            number=world.asked,
            gateway=number,
            engine=engine,
            tokens=tokens,
            texts=texts,
            allowed=allowed,
            ticket=written,
            queue=queue,
            reservation=reservation,
            due=now + (0.0 if dice.random() < 0.7 else dice.choice(LATE_SECONDS)),
            writer=world.deployed.oracle.writer(texts),
        )
    )
    if dice.random() < 0.7:
        world.turns(dice.randrange(80))


def _drifted(marked: list[tuple[Label, int]], spot: int, own: Label) -> list[tuple[Label, int]]:
    """From the segment with the changed token on, everything is the caller's own.

    Neighbours of one label are one segment.
    """
    before: Label | None = None
    start = at = 0
    for label, length in marked:
        start = start if label == before else at
        before, at = label, at + length
        if spot < at:
            break
    kept: list[tuple[Label, int]] = []
    used = 0
    for part in marked:
        if used >= start:
            break
        kept.append(part)
        used += part[1]
    return [*kept, (own, sum(length for _, length in marked) - used)]
