"""The laws about what is kept: nothing lost or counted twice, and no limit passed."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from scopekv.simulate.fuzz.engine import LEDGER_MAX
from scopekv.simulate.fuzz.laws.law import Law
from scopekv.simulate.fuzz.outer import OBJECT_BYTES

if TYPE_CHECKING:
    from scopekv.simulate.fuzz.outer import OuterTier
    from scopekv.simulate.fuzz.world import World


class Conservation(Law):
    """Bytes kept are bytes put in less bytes gone, in every book; pins are given back."""

    name: ClassVar[str] = "conservation"

    def moment(self, world: World) -> None:
        for gateway in world.gateways:
            for engine, queue in zip(world.engines, gateway.loads, strict=True):
                known = sum(flight.queue is queue for flight in world.open)
                if known != queue.in_flight:
                    self.broken(f"{known} requests at {engine.name} counted as {queue.in_flight}")
        for name, tier in world.tiers():
            booked = sum(tier.mirror.sizes.values())
            if booked != tier.mirror.used_bytes() or len(tier.mirror.sizes) != len(tier.mirror):
                self.broken(f"{name}: {booked} bytes are {tier.mirror.used_bytes()} to eviction")
            if tier.reported_twice:
                self.broken(f"{name}: a job was reported twice")

    def rest(self, world: World) -> None:
        for name, tier in world.tiers():
            counters = tier.tier.counters()
            booked = sum(tier.mirror.sizes.values())
            if tier.mirror.pins:
                self.broken(f"{name}: {len(tier.mirror.pins)} objects stay pinned")
            if counters["used_bytes"] != booked or counters["objects"] != len(tier.mirror.sizes):
                self.broken(f"{name}: {booked} bytes counted as {counters['used_bytes']}")
            if sum(tier.tier.used_by_account().values()) != booked:
                self.broken(f"{name}: accounts do not add up to {booked} bytes")
            if not tier.plan.shared:
                self._compare(name, tier)

    def _compare(self, name: str, tier: OuterTier) -> None:
        there, booked = tier.plan.place.sealed().keys(), tier.mirror.sizes.keys()
        lost, unknown = booked - there, there - booked
        empty = {key for key in unknown if not tier.plan.place.stored[key][0]}
        if lost or unknown - empty:
            self.broken(f"{name}: {len(lost)} objects are not there, {len(unknown)} not known")


class BoundedMemory(Law):
    """No limit is passed at any moment: blocks, bytes of tiers, uses of tickets, index entries."""

    name: ClassVar[str] = "bounded_memory"

    def moment(self, world: World) -> None:
        for engine in world.engines:
            self._at_most(f"{engine.name}: cache", len(engine.cache), engine.cache.blocks_max)
            self._at_most(f"{engine.name}: host", len(engine.host), engine.host.blocks_max)
            self._at_most(f"{engine.name}: ticket uses", len(engine.uses), LEDGER_MAX)
        for name, tier in world.tiers():
            room = tier.plan.capacity_bytes
            if tier.plan.shared or not tier.tier.ready:
                continue  # others write there, or a life before did: the next listing tells
            self._at_most(f"{name}: bytes", tier.tier.counters()["used_bytes"], room)
            held = tier.plan.place.sealed().values()
            stored = sum(min(len(data), OBJECT_BYTES) for data, _ in held)  # damage aside
            self._at_most(f"{name}: bytes in the store", stored, room)
        for gateway in world.gateways:
            self._at_most("location index", len(gateway.index), gateway.index.blocks_max)

    def rest(self, world: World) -> None:
        for name, tier in world.tiers():
            used = tier.tier.counters()["used_bytes"]
            self._at_most(f"{name}: bytes", used, tier.plan.capacity_bytes)

    def _at_most(self, what: str, found: int, limit: int) -> None:
        if found > limit:
            self.broken(f"{what}: {found} of at most {limit}")
