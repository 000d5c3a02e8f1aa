"""The world of one seed: who is in it, whose turn it is, and how it comes to rest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

from scopekv.simulate.fuzz.bus import Noise
from scopekv.simulate.fuzz.clock import Clock, Machine
from scopekv.simulate.fuzz.deployment import Deployed
from scopekv.simulate.fuzz.dice import dice
from scopekv.simulate.fuzz.engine import Engine
from scopekv.simulate.fuzz.flight import Flight
from scopekv.simulate.fuzz.gateway import Gateway
from scopekv.simulate.fuzz.laws import Law
from scopekv.simulate.fuzz.memory import Sizes
from scopekv.simulate.fuzz.outer import OBJECT_BYTES, OuterTier, TierPlan
from scopekv.simulate.fuzz.people import Society
from scopekv.simulate.fuzz.places import Place, Trouble
from scopekv.simulate.fuzz.revoker import Revoker

DEPTH_MAX = 2  # calls that others may overtake inside one another
SNAPSHOT_LOST = 0.1
REST_ROUNDS = 60
REST_SECONDS = 3.0


class World:
    """Everything of one seed. `dice` are those of the operation under way."""

    def __init__(self, seed: int, laws: Sequence[Law]) -> None:
        self.seed, self.laws = seed, laws
        self.dice = dice("world", seed)
        self.clock = Clock()
        self.noise = Noise()
        self.open: list[Flight] = []  # sent and not ended
        self.places: list[Place] = []
        self.asked = 0
        self._depth = 0
        self._calm = False
        self.machines = [Machine(self.clock) for _ in range(3)]
        self.deployed = Deployed(self.clock, self.machines[0], self.present_dice)
        self.deployed.pause = self.pause
        remote = self._place("valkey") if self.dice.random() < 0.5 else None
        self.engines = [
            self._engine(number, remote) for number in range(2 + self.dice.randrange(2))
        ]
        self.gateways = [
            Gateway(self.deployed, self.clock, self.machines[0], self.present_dice, self.engines)
            for _ in range(1 + self.dice.randrange(2))
        ]
        self.revoker = Revoker(
            self.deployed, self.engines, self.present_dice, self.machines[0].wall
        )
        self.society = Society(self.deployed, self.revoker, self.dice)

    def present_dice(self) -> Random:
        return self.dice

    def tiers(self) -> Iterator[tuple[str, OuterTier]]:
        """The tiers of all engines that are up, with their names."""
        for engine in self.engines:
            for tier in engine.tiers if engine.up else ():
                yield f"{engine.name}/{tier.plan.label}", tier

    def _place(self, medium: str) -> Place:
        place = Place(medium, self.machines[-1], self.present_dice, self.pause)
        self.places.append(place)
        return place

    def _engine(self, number: int, remote: Place | None) -> Engine:
        chance, plans = self.dice, []
        if chance.random() < 0.8:
            room = OBJECT_BYTES * (4 + chance.randrange(24))
            plans.append(
                TierPlan("directory", self._place("directory"), room, False, self.present_dice)
            )
        if remote is not None:
            room = OBJECT_BYTES * (8 + chance.randrange(40))
            plans.append(TierPlan("valkey", remote, room, True, self.present_dice))
        return Engine(
            f"engine-{number}",
            self.deployed,
            self.clock,
            self.machines[number % len(self.machines)],
            self.present_dice,
            Sizes(cache_blocks=6 + chance.randrange(24), host_blocks=4 + chance.randrange(32)),
            plans,
            self._seen,
            self.ended,
        )

    # --- time and turns -------------------------------------------------------------------------

    def pause(self, seconds: float) -> None:
        """Time passes inside a call, and others may overtake it."""
        self.clock.advance(seconds)
        if not self._calm and self._depth < DEPTH_MAX and self.dice.random() < 0.25:
            self._depth += 1
            try:
                self.turn()
            finally:
                self._depth -= 1

    def turn(self) -> None:
        """One small thing that somebody does."""
        engine = self.engines[self.dice.randrange(len(self.engines))]
        roll = self.dice.random()
        if roll < 0.35:
            if engine.up:
                engine.step(self.noise)
        elif roll < 0.72:
            if engine.up:
                engine.turn()
        elif roll < 0.84:
            self.deliver()
        elif roll < 0.95:
            gateway = self.gateways[self.dice.randrange(len(self.gateways))]
            number = self.dice.randrange(len(self.engines))
            if self.dice.random() > 0.6 or not gateway.hear(number):
                self.look(gateway, number)
        else:
            self.revoker.step(self.noise)

    def turns(self, count: int) -> None:
        for _ in range(count):
            self.clock.advance(0.002)
            self.turn()

    def look(self, gateway: Gateway, number: int) -> None:
        """A gateway's heartbeat to one engine, and a snapshot where one is due."""
        engine, follower = self.engines[number], gateway.followers[number]
        gateway.tidy()
        if not engine.up:
            gateway.heartbeat(number, None)
            return
        gateway.heartbeat(number, engine.bus.snapshot(self.noise, self.dice, blocks=False))
        if not follower.due(self.clock.seconds):
            return
        life = follower.begin(self.clock.seconds)
        self.pause(0.01)  # on its way there
        if self._snapshot_fails(engine):
            follower.failed()
            return
        told = engine.bus.snapshot(self.noise, self.dice, blocks=True)
        self.pause(0.01)  # and back
        for _ in follower.restore(life, told, self.clock.seconds):
            self.pause(0.001)

    def _snapshot_fails(self, engine: Engine) -> bool:
        return not engine.up or (not self._calm and self.dice.random() < SNAPSHOT_LOST)

    # --- requests -------------------------------------------------------------------------------

    def send(self, flight: Flight) -> None:
        self.open.append(flight)

    def deliver(self) -> None:
        """A request arrives at its engine; where that is gone, its client is told so."""
        for flight in self.open:
            if flight.waits and flight.due <= self.clock.seconds:
                engine = self.engines[flight.engine]
                if engine.up:
                    engine.take(flight)
                else:
                    self.ended(flight, died=True)
                return

    def kill(self, number: int) -> None:
        """An engine dies, with what it did; what was on its way there dies with the connection."""
        engine = self.engines[number]
        engine.kill()
        for flight in [one for one in self.open if one.engine == number]:
            self.ended(flight, died=True)

    def start(self, number: int) -> None:
        """A new life of an engine, fenced before it gets requests."""
        self.engines[number].start()
        self.revoker.catch_up(self.engines[number], self.noise)

    def ended(self, flight: Flight, *, died: bool = False) -> None:
        self.open.remove(flight)
        flight.queue.done(flight.reservation, self.clock.seconds)
        for law in self.laws:
            law.ended(flight, died=died)

    def _seen(self, flight: Flight, block: int, data: bytes, source: str) -> None:
        for law in self.laws:
            law.read(self, flight, block, data, source)

    # --- the end --------------------------------------------------------------------------------

    def settle(self) -> None:
        """No more faults: everybody is up, well and heard, and goes on until nothing is left."""
        self.noise.loses = self.noise.repeats = self.noise.mixes = 0.0
        self.revoker.loses = self.deployed.broker_fails = 0.0
        self.deployed.registry.down = self.deployed.root_key.down = False
        for place in self.places:
            place.trouble = Trouble()
        for number, engine in enumerate(self.engines):
            if not engine.up:
                self.start(number)
        self._calm = True
        for number in range(REST_ROUNDS):
            self._round()
            if number > 2 and not self.unrest():
                break
        for _ in range(2):  # janitors list their stores once more, and gateways hear of all
            self.clock.advance(700.0)
            self._round()
            self._round()

    def _round(self) -> None:
        """Everybody's turn."""
        self.clock.advance(REST_SECONDS)
        for _ in range(len(self.open)):
            self.deliver()
        for engine in self.engines:
            for _ in range(8):
                for _ in range(len(engine.flights)):
                    engine.step(self.noise)
                engine.work_off()
            engine.step(self.noise)
        for _ in range(2 * len(self.revoker.open) * len(self.engines)):
            self.revoker.step(self.noise)
        for gateway in self.gateways:
            for number in range(len(self.engines)):
                while gateway.hear(number):
                    pass
                self.look(gateway, number)

    def unrest(self) -> list[str]:
        """What is still under way."""
        left = []
        if self.open:
            left.append(f"{len(self.open)} requests are open")
        if self.revoker.open:
            left.append(f"{len(self.revoker.open)} revocations are not done")
        for name, tier in self.tiers():
            jobs = len(tier.loads_open) + len(tier.stores_open)
            if jobs or tier.tier.counters()["queued"]:
                left.append(f"{name} has {jobs} jobs")
            if tier.tier.counters()["suspended"] or tier.tier.counters()["writes_suspended"]:
                left.append(f"{name} is suspended")
        return left
