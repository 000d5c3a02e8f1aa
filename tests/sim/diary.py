"""A law that breaks never and writes down all that happens: one digest a world.

Run as a program it prints the digest of some seeds, so that two processes can be compared.
"""

from __future__ import annotations

import hashlib
import sys
from typing import TYPE_CHECKING

from scopekv.simulate.fuzz.laws import Law
from scopekv.simulate.fuzz.runs import run

if TYPE_CHECKING:
    from scopekv.simulate.fuzz.flight import Flight
    from scopekv.simulate.fuzz.world import World


class Diary(Law):
    """`reads` by source, `digest` over everything."""

    name = "diary"

    def __init__(self) -> None:
        self.reads = {"engine": 0, "host": 0, "tier": 0}
        self.ended_well = self.revocations = 0
        self._lines = hashlib.sha256()

    def read(self, world: World, flight: Flight, block: int, data: bytes, source: str) -> None:
        self.reads[source] += 1
        self._write(flight.number, block, data.hex(), source, round(world.clock.seconds, 6))

    def ended(self, flight: Flight, *, died: bool) -> None:
        self.ended_well += not died
        self._write(flight.number, flight.steps, flight.reused, died)

    def rest(self, world: World) -> None:
        self.revocations = world.revoker.done
        for name, tier in world.tiers():
            self._write(name, sorted(tier.tier.counters().items()))
        for gateway in world.gateways:
            self._write([sorted(one.counts.items()) for one in gateway.followers])

    @property
    def digest(self) -> str:
        return self._lines.hexdigest()

    def _write(self, *words: object) -> None:
        self._lines.update(repr(words).encode())


def diary(seed: int) -> Diary:
    """What happens in a seed."""
    kept = Diary()
    run(seed, watching=[kept])
    return kept


if __name__ == "__main__":
    print([diary(int(seed)).digest for seed in sys.argv[1:]])
