"""What each kind of operation does to a world."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from scopekv.simulate.fuzz.asking import ask, drift, forge
from scopekv.simulate.fuzz.operations import Kind
from scopekv.simulate.fuzz.oracle import Paper, Person
from scopekv.simulate.fuzz.people import ORGS
from scopekv.simulate.fuzz.world import World
from scopekv.store import scope_keys

JUMPS = (-7200.0, -400.0, -20.0, -2.0, -1.0, 1.0, 2.0, 20.0, 400.0, 7200.0)
WAITS = (0.05, 0.3, 1.0, 3.0, 12.0, 70.0, 400.0)
Act = Callable[[World], None]


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
