"""KV events from engines to gateways: lost, repeated, late, in another order; and snapshots."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random

from scopekv.core.block_hashes import short
from scopekv.core.events import Batch, Cleared, Event, Medium, Removed, Snapshot, Stored


@dataclass(slots=True)
class Noise:
    """Chances of each batch on its way to one gateway."""

    loses: float = 0.0
    repeats: float = 0.0
    mixes: float = 0.0  # of being overtaken


@dataclass(slots=True)
class Channel:
    """Batches of one engine on their way to one gateway. `broken`: the connection was lost."""

    batches: list[Batch] = field(default_factory=list)
    broken: bool = False

    def send(self, batch: Batch, noise: Noise, dice: Random) -> None:
        if dice.random() < noise.loses:
            return
        spot = len(self.batches)
        if spot and dice.random() < noise.mixes:
            spot = dice.randrange(spot)
        self.batches.insert(spot, batch)
        if dice.random() < noise.repeats:
            self.batches.append(batch)


class Publisher:
    """The events of one engine: a batch a step, numbered from 0 in each life."""

    def __init__(
        self, wall: Callable[[], float], held: Callable[[], Mapping[Medium, Sequence[int]]]
    ) -> None:
        self._wall, self._held = wall, held
        self.life = 0
        self.sequence = 0
        self.channels: list[Channel] = []
        self._waiting: list[Event] = []

    @property
    def instance(self) -> str:
        return f"life-{self.life}"

    def teller(self, medium: Medium) -> Callable[[bytes, bool], None]:
        """What a cache calls when a block comes (True) or leaves."""
        return partial(self._told, medium)

    def cleared(self) -> None:
        self._waiting.append(Cleared())

    def flush(self, noise: Noise, dice: Random) -> None:
        """End a step: publish what waits."""
        if self._waiting:
            batch = Batch(self.sequence, self._wall(), tuple(self._waiting))
            self._waiting = []
            self.sequence += 1
            for channel in self.channels:
                channel.send(batch, noise, dice)

    def snapshot(self, noise: Noise, dice: Random, *, blocks: bool) -> Snapshot:
        """What is held after all batches that were published."""
        self.flush(noise, dice)
        listed = self._held() if blocks else None
        return Snapshot(self.instance, self.sequence, self._wall(), listed)

    def new_life(self) -> None:
        """Numbers start from 0, and nothing says so. Batches on their way may still come."""
        self.life += 1
        self.sequence = 0
        self._waiting = []
        self.breaks()

    def breaks(self) -> None:
        """A connection ends, or stands anew: some batches in between came to nobody."""
        for channel in self.channels:
            channel.broken = True

    def _told(self, medium: Medium, block_hash: bytes, came: bool) -> None:
        kind = Stored if came else Removed
        self._waiting.append(kind(medium, [short(block_hash)]))
