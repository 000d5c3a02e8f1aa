"""The laws about how things end: every request does, figures are true, the index is exact."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from scopekv.core.events import Medium
from scopekv.simulate.fuzz.flight import BLOCK_TOKENS
from scopekv.simulate.fuzz.laws.law import Law

if TYPE_CHECKING:
    from scopekv.simulate.fuzz.flight import Flight
    from scopekv.simulate.fuzz.world import World

STEPS_MAX = 400  # of one request: asks are bounded for each of its blocks


class Progress(Law):
    """Every request ends in a bounded number of steps, and every revocation once all is well."""

    name: ClassVar[str] = "progress"

    def moment(self, world: World) -> None:
        for flight in world.open:
            if flight.steps > STEPS_MAX:
                self.broken(f"request {flight.number} has not ended after {flight.steps} steps")

    def rest(self, world: World) -> None:
        left = world.unrest()
        if left:
            self.broken(f"nothing fails any more, and still: {', '.join(left)}")


class HonestCounters(Law):
    """Hits counted are tokens that were reused; each input token is counted once (L12)."""

    name: ClassVar[str] = "honest_counters"

    def __init__(self) -> None:
        self._input = self._cached = 0

    def ended(self, flight: Flight, *, died: bool) -> None:
        if died:
            return
        self._input += len(flight.tokens)
        self._cached += flight.reused * BLOCK_TOKENS
        if flight.cached_tokens != flight.reused * BLOCK_TOKENS:
            self.broken(
                f"request {flight.number} reused {flight.reused} blocks, and says otherwise"
            )

    def rest(self, world: World) -> None:
        told = sum(engine.input_tokens for engine in world.engines)
        if told != self._input:
            self.broken(f"{self._input} input tokens are counted as {told}")
        told = sum(engine.cached_tokens for engine in world.engines)
        if told != self._cached:
            self.broken(f"{self._cached} reused tokens are counted as {told}")
        for engine in world.engines:
            if sum(engine.judged.values()) != engine.taken:
                self.broken(f"{engine.name}: verdicts do not add up to requests")
        for name, tier in world.tiers():
            loaded = tier.tier.counters()["loaded"]
            if loaded != tier.loaded:
                self.broken(f"{name}: {tier.loaded} blocks came, {loaded} are counted")


class IndexExact(Law):
    """At rest every gateway knows what every engine holds, no more and no less (R4)."""

    name: ClassVar[str] = "index_exact"

    def rest(self, world: World) -> None:
        for gateway in world.gateways:
            for engine, follower in zip(world.engines, gateway.followers, strict=True):
                if not follower.sure:
                    self.broken(f"{engine.name} is unsure at rest: {follower.doubt}")
                for medium in (Medium.ENGINE, Medium.HOST):
                    if gateway.index.contents(engine.name, medium) != engine.memory.truth(medium):
                        self.broken(f"{engine.name}: {medium.name.lower()} memory is not as told")
