"""Where sealed bytes lie: a store that is slow, fails, lies, fills up, and is left half way.

Whatever calls it stands still meanwhile and others go on: the world takes turns inside the call,
before it has its effect and after, which is how threads overtake one another here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

from scopekv.errors import Unavailable
from scopekv.ports import ObjectKey, ObjectStat
from scopekv.ports.objects import Bytes, Wanted
from scopekv.simulate.fuzz.clock import Machine
from scopekv.store.janitor import PROBE_FOLDER


class Killed(BaseException):
    """The process that called is no more. Nothing of it may go on, so nothing may catch this."""


@dataclass(slots=True)
class Trouble:
    """Chances per call, and limits. `half`: a failing write has its effect all the same."""

    fails_reads: float = 0.0
    fails_writes: float = 0.0
    half: float = 0.5
    seconds: float = 0.001
    flips: float = 0.0
    room_bytes: float = float("inf")


@dataclass(slots=True)
class Process:
    """Whoever calls. Dead ones get no answer."""

    alive: bool = True


class Place:
    """The bytes of one store and how it behaves. Clients of it are `PlaceClient`s."""

    def __init__(
        self,
        medium: str,
        machine: Machine,
        dice: Callable[[], Random],
        pause: Callable[[float], None],
    ) -> None:
        self.medium = medium
        self.machine = machine
        self.dice = dice
        self.pause = pause  # (seconds): time passes, and others take their turns
        self.trouble = Trouble()
        self.stored: dict[ObjectKey, tuple[bytes, float]] = {}
        self.aside: dict[ObjectKey, tuple[bytes, float]] = {}

    def sealed(self) -> dict[ObjectKey, tuple[bytes, float]]:
        """All but what a janitor's probe left."""
        return {key: held for key, held in self.stored.items() if _is_ours(key)}

    def damage(self) -> None:
        """What disks and power cuts do: change, cut, lengthen, empty or exchange objects."""
        dice, keys = self.dice(), list(self.stored)
        if not keys:
            return
        key = keys[dice.randrange(len(keys))]
        content, at = self.stored[key]
        kind = dice.randrange(5)
        if kind == 0 and content:
            spot = dice.randrange(len(content))
            content = content[:spot] + bytes([content[spot] ^ 1]) + content[spot + 1 :]
        elif kind == 1:
            content = content[: dice.randrange(len(content) + 1)]
        elif kind == 2:
            content += b"\0"
        elif kind == 3:
            content = b""
        else:
            other = keys[dice.randrange(len(keys))]
            self.stored[other], content = (content, self.stored[other][1]), self.stored[other][0]
        self.stored[key] = (content, at)


class PlaceClient:
    """`ports.ObjectStore` for one process."""

    def __init__(self, place: Place, process: Process) -> None:
        self._place = place
        self._process = process

    @property
    def medium(self) -> str:
        return self._place.medium

    def put(self, key: ObjectKey, parts: Sequence[Bytes]) -> None:
        content = b"".join(bytes(part) for part in parts)
        place = self._place
        half = self._before(write=True)
        used = sum(len(data) for one, (data, _) in place.stored.items() if one != key)
        if used + len(content) > place.trouble.room_bytes:
            raise Unavailable("the simulated store is full")
        if half is None or half:
            place.stored[key] = (content, place.machine.wall())
        self._after(half)

    def get(self, key: ObjectKey, into: memoryview) -> int | None:
        self._after(self._before(write=False))
        found = self._place.stored.get(key)
        if found is None:
            return None
        content = found[0]
        if len(content) <= into.nbytes:
            into[: len(content)] = content
            dice = self._place.dice()
            if content and dice.random() < self._place.trouble.flips:
                into[dice.randrange(len(content))] ^= 1
        return len(content)

    def present(self, keys: Sequence[ObjectKey]) -> frozenset[ObjectKey]:
        self._after(self._before(write=False))
        return frozenset(key for key in keys if key in self._place.stored)

    def delete(self, keys: Sequence[ObjectKey]) -> int:
        half = self._before(write=True)
        count = 0
        if half is None or half:
            for key in keys:
                self._place.aside.pop(key, None)
                count += self._place.stored.pop(key, None) is not None
        self._after(half)
        return count

    def chains(self) -> Iterator[str]:
        self._after(self._before(write=False))
        return iter(dict.fromkeys(key.chain for key in self._place.stored))

    def objects(self, chain: str | Wanted | None = None) -> Iterator[ObjectStat]:
        self._after(self._before(write=False))
        found = _stats(self._place.stored)
        if isinstance(chain, str):
            return (stat for stat in found if stat.key.chain == chain)
        return (stat for stat in found if chain is None or chain(stat.key.chain))

    def quarantine(self, key: ObjectKey) -> None:
        half = self._before(write=True)
        if half is None or half:
            found = self._place.stored.pop(key, None)
            if found is not None:
                self._place.aside[key] = found
        self._after(half)

    def quarantined(self) -> Iterator[ObjectStat]:
        self._after(self._before(write=False))
        return iter(_stats(self._place.aside))

    def close(self) -> None:
        """Nothing is open."""

    def _before(self, *, write: bool) -> bool | None:
        """Others go on. None: the call succeeds; else it fails, True: after its effect."""
        place = self._place
        place.pause(place.trouble.seconds)
        if not self._process.alive:
            raise Killed
        dice, trouble = place.dice(), place.trouble
        if dice.random() >= (trouble.fails_writes if write else trouble.fails_reads):
            return None
        return write and dice.random() < trouble.half

    def _after(self, half: bool | None) -> None:
        self._place.pause(0.0)
        if not self._process.alive:
            raise Killed
        if half is not None:
            raise Unavailable("the simulated store is out of reach")


def _stats(objects: dict[ObjectKey, tuple[bytes, float]]) -> list[ObjectStat]:
    return [ObjectStat(key, len(content), at) for key, (content, at) in objects.items()]


def _is_ours(key: ObjectKey) -> bool:
    """Whether an object is a block, not what a janitor's probe left."""
    return key.chain != PROBE_FOLDER
