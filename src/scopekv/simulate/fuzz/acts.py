"""What each kind of operation does to a world."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random

from scopekv.core.tickets import mint
from scopekv.errors import Unavailable
from scopekv.simulate.fuzz.dice import dice as make_dice
from scopekv.simulate.fuzz.flight import Flight
from scopekv.simulate.fuzz.gateway import Decided
from scopekv.simulate.fuzz.operations import Kind
from scopekv.simulate.fuzz.oracle import Label, Paper, Person
from scopekv.simulate.fuzz.people import ORGS, labels, prompt
from scopekv.simulate.fuzz.world import World
from scopekv.store import scope_keys

SESSIONS = ("", "", "", "s1")
JUMPS = (-7200.0, -400.0, -20.0, -2.0, -1.0, 1.0, 2.0, 20.0, 400.0, 7200.0)
WAITS = (0.05, 0.3, 1.0, 3.0, 12.0, 70.0, 400.0)
OTHER_TOKEN = 7
LATE_SECONDS = (0.02, 0.05, 0.2, 1.0, 12.0)
PROMPTS = 8  # of a world: others ask the same
Act = Callable[[World], None]


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
    dice, oracle = world.dice, world.deployed.oracle
    person = list(oracle.people.values())[dice.randrange(len(oracle.people))]
    session = SESSIONS[dice.randrange(len(SESSIONS))]
    shape = make_dice("prompt", world.seed, dice.randrange(PROMPTS))
    pieces = prompt(world.society.papers, shape)
    number = dice.randrange(len(world.gateways))
    gateway = world.gateways[number]
    try:
        decided = gateway.decide(person.name, session, pieces)
    except Unavailable:
        return  # refused: the registry is out of reach
    tokens = [token for piece in pieces for token in piece.tokens]
    placed = gateway.route(tokens, decided.ticket) if decided is not None else None
    if decided is None or placed is None:
        return
    marked = labels(world.deployed, person, session, pieces)
    if drifts:
        spot = (1, len(tokens) // 2)[dice.randrange(2)]
        tokens[spot] = OTHER_TOKEN
        marked = _drifted(marked, spot, ("user", person.name, session))
    world.asked += 1
    if not believed:
        marked = [(("nobody", str(world.asked)), len(tokens))]
    engine, cached, seconds = placed
    queue = gateway.loads[engine]
    now = world.clock.seconds
    texts = oracle.texts(marked)
    world.send(
        Flight(
            number=world.asked,
            gateway=number,
            engine=engine,
            tokens=tokens,
            texts=texts,
            allowed=oracle.allowed(person, session),
            ticket=ticket(dice, decided),
            queue=queue,
            reservation=queue.place(
                now,
                total_tokens=len(tokens),
                cached_tokens=cached,
                prefill_seconds=seconds,
                streams=True,
            ),
            due=now + (0.0 if dice.random() < 0.7 else dice.choice(LATE_SECONDS)),
            writer=oracle.writer(texts),
        )
    )
    if dice.random() < 0.7:
        world.turns(dice.randrange(80))


def _drifted(marked: list[tuple[Label, int]], spot: int, own: Label) -> list[tuple[Label, int]]:
    """From the segment with the changed token on, everything is the caller's own.

    Neighbours of one label are one segment.
    """
    made: list[tuple[Label, int]] = []
    at, start = 0, 0
    for number, (label, length) in enumerate(marked):
        if number and marked[number - 1][0] != label:
            start = at
        at += length
        if spot < at:
            kept, used = [], 0
            for before, size in marked:
                if used >= start:
                    break
                kept.append((before, size))
                used += size
            total = sum(size for _, size in marked)
            return [*kept, (own, total - used)]
        made.append((label, length))
    return made


def work(world: World) -> None:
    world.turns(10 + world.dice.randrange(40))


def wait(world: World) -> None:
    world.clock.advance(WAITS[world.dice.randrange(len(WAITS))])


def revise(world: World) -> None:
    paper = _some_paper(world)
    if paper is not None:
        world.society.revise(paper)
        _carry_out(world)


def readdress(world: World) -> None:
    paper = _some_paper(world)
    if paper is not None:
        world.society.readdress(paper, world.dice)
        _carry_out(world)


def withdraw(world: World) -> None:
    paper = _some_paper(world)
    if paper is not None:
        world.society.withdraw(paper)
        _carry_out(world)


def publish(world: World) -> None:
    world.society.publish(world.dice)


def join(world: World) -> None:
    world.society.membership(_anybody(world), inside=True)


def leave(world: World) -> None:
    world.society.membership(_anybody(world), inside=False)
    _carry_out(world)


def end_user(world: World) -> None:
    world.society.end_user(_anybody(world, _on_its_way(world, "user")))
    _carry_out(world)


def end_org(world: World) -> None:
    found = _on_its_way(world, "org")
    world.society.end_org(found or ORGS[world.dice.randrange(len(ORGS))])
    _carry_out(world)


def _carry_out(world: World) -> None:
    """The gateway begins at once; it may not come to an end."""
    for _ in range(world.dice.randrange(12)):
        world.revoker.step(world.noise)
        world.turns(world.dice.randrange(4))


def kill(world: World) -> None:
    number = world.dice.randrange(len(world.engines))
    if world.engines[number].up:
        world.kill(number)


def start(world: World) -> None:
    for number, engine in enumerate(world.engines):
        if not engine.up:
            world.start(number)
            return


def new_gateway(world: World) -> None:
    world.gateways[world.dice.randrange(len(world.gateways))].start()


def reset(world: World) -> None:
    engine = world.engines[world.dice.randrange(len(world.engines))]
    if engine.up:
        engine.reset(host=world.dice.random() < 0.5, noise=world.noise)


def set_clock(world: World) -> None:
    machine = world.machines[world.dice.randrange(len(world.machines))]
    jump = JUMPS[world.dice.randrange(len(JUMPS))]
    machine.offset = 0.0 if machine.offset and world.dice.random() < 0.5 else jump


def store_trouble(world: World) -> None:
    if not world.places:
        return
    dice = world.dice
    trouble = world.places[dice.randrange(len(world.places))].trouble
    kind = dice.randrange(5)
    if kind == 0:
        trouble.fails_reads = dice.choice((0.1, 0.5, 1.0))
    elif kind == 1:
        trouble.fails_writes = dice.choice((0.1, 0.5, 1.0))
    elif kind == 2:
        trouble.seconds = dice.choice((0.05, 0.5, 3.0))
    elif kind == 3:
        trouble.flips = dice.choice((0.1, 1.0))
    else:
        trouble.room_bytes = 200.0 * dice.randrange(1, 12)


def store_well(world: World) -> None:
    for place in world.places:
        place.trouble.fails_reads = place.trouble.fails_writes = place.trouble.flips = 0.0
        place.trouble.seconds, place.trouble.room_bytes = 0.001, float("inf")


def damage(world: World) -> None:
    if world.places:
        world.places[world.dice.randrange(len(world.places))].damage()


def bus_trouble(world: World) -> None:
    noise, dice = world.noise, world.dice
    noise.loses, noise.repeats, noise.mixes = (dice.choice((0.0, 0.1, 0.4)) for _ in range(3))


def network_trouble(world: World) -> None:
    world.revoker.loses = world.dice.choice((0.0, 0.3, 0.8))
    world.deployed.broker_fails = world.dice.choice((0.0, 0.3, 1.0))


def registry_trouble(world: World) -> None:
    world.deployed.registry.down = world.dice.random() < 0.4
    world.deployed.root_key.down = world.dice.random() < 0.4


def rotate(world: World) -> None:
    """A new root key; maybe all is wrapped anew; maybe the old one goes, ready or not."""
    root_key = world.deployed.root_key
    root_key.rotate()
    if world.dice.random() < 0.7:
        drop = world.dice.random() < 0.5
        scope_keys.rewrap(world.deployed.registry.port, root_key, drop_unreadable=drop)
    if world.dice.random() < 0.3:
        root_key.retire()


def expire(world: World) -> None:
    """Keys that nobody used go, and tiers delete what is past its time."""
    world.deployed.broker.expire_keys(world.machines[0].wall())
    for _, tier in list(world.tiers()):
        tier.expire()


def _on_its_way(world: World, kind: str) -> str | None:
    """Mostly a name of this kind that a request on its way has in its ticket: what is hardest."""
    found = [
        text.label[1]
        for flight in world.open
        if flight.waits
        for text in flight.texts
        if text.label[0] == kind
    ]
    if not found or world.dice.random() < 0.3:
        return None
    return found[world.dice.randrange(len(found))]


def _some_paper(world: World) -> Paper | None:
    papers = {one.uid: one for one in world.society.papers if not one.withdrawn}
    named = papers.get(_on_its_way(world, "doc") or "")
    if named is not None or not papers:
        return named
    return list(papers.values())[world.dice.randrange(len(papers))]


def _anybody(world: World, name: str | None = None) -> Person:
    people = world.deployed.oracle.people
    return people[name] if name else list(people.values())[world.dice.randrange(len(people))]


ACTS: Mapping[Kind, Act] = {
    Kind.ASK: ask,
    Kind.DRIFT: drift,
    Kind.FORGE: forge,
    Kind.WORK: work,
    Kind.WAIT: wait,
    Kind.REVISE: revise,
    Kind.READDRESS: readdress,
    Kind.WITHDRAW: withdraw,
    Kind.PUBLISH: publish,
    Kind.JOIN: join,
    Kind.LEAVE: leave,
    Kind.END_USER: end_user,
    Kind.END_ORG: end_org,
    Kind.KILL: kill,
    Kind.START: start,
    Kind.NEW_GATEWAY: new_gateway,
    Kind.RESET: reset,
    Kind.SET_CLOCK: set_clock,
    Kind.STORE_TROUBLE: store_trouble,
    Kind.STORE_WELL: store_well,
    Kind.DAMAGE: damage,
    Kind.BUS_TROUBLE: bus_trouble,
    Kind.NETWORK_TROUBLE: network_trouble,
    Kind.REGISTRY_TROUBLE: registry_trouble,
    Kind.ROTATE: rotate,
    Kind.EXPIRE: expire,
}
