"""Running seeds, and making a failing one small."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from scopekv.errors import Unavailable
from scopekv.simulate.fuzz.acts import ACTS
from scopekv.simulate.fuzz.dice import dice
from scopekv.simulate.fuzz.laws import Law, Violation, every_law
from scopekv.simulate.fuzz.operations import Operation, operations
from scopekv.simulate.fuzz.places import Killed
from scopekv.simulate.fuzz.world import World

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Found:
    """A seed that breaks a law, or where a part fails (`law` is then `no_failure`)."""

    seed: int
    law: str
    words: str
    operations: tuple[int, ...] | None  # what is left of its operations; None: all

    @property
    def command(self) -> str:
        """What replays it."""
        kept = "" if self.operations is None else " --operations " + _listed(self.operations)
        return f"scopekv simulate --fuzz --seeds 1 --seed {self.seed}{kept}"


def run(
    seed: int, listed: Sequence[Operation] | None = None, *, watching: Sequence[Law] = ()
) -> Found | None:
    """Run one seed, with all of its operations or those listed; return what is wrong, if anything.

    `watching`: laws besides all of ours, such as one that keeps a diary.
    State change outside: none. The same arguments give the same answer.
    """
    chosen = operations(seed) if listed is None else listed
    kept = None if listed is None else tuple(one.number for one in listed)
    with _quiet():
        try:
            _run(seed, chosen, [*every_law(), *watching])
        except Violation as broken:
            return Found(seed, broken.law, str(broken), kept)
        except Exception as error:  # noqa: BLE001 - whatever a part raises is a finding
            return Found(seed, "no_failure", f"{type(error).__name__}: {error}", kept)
    return None


def run_many(first: int, count: int, progress: Progress = lambda _: None) -> list[Found]:
    """Run seeds `first`, `first + 1`, ...; return those that fail."""
    found = []
    for done, seed in enumerate(range(first, first + count), start=1):
        one = run(seed)
        if one is not None:
            found.append(one)
        progress(done)
    return found


def shrink(found: Found) -> Found:
    """Leave operations out while the same law is still broken, in ever smaller pieces."""
    every = {one.number: one for one in operations(found.seed)}
    numbers = list(every) if found.operations is None else list(found.operations)
    size = len(numbers) // 2
    while size:
        start = 0
        while start < len(numbers):
            fewer = numbers[:start] + numbers[start + size :]
            again = run(found.seed, [every[number] for number in fewer])
            if again is not None and again.law == found.law:
                numbers, found = fewer, again
            else:
                start += size
        size //= 2
    return found


def _run(seed: int, chosen: Sequence[Operation], laws: Sequence[Law]) -> None:
    world = World(seed, laws)
    for one in chosen:
        world.dice = dice("operation", seed, one.number)
        with suppress(Unavailable, Killed):  # refused, or the end of a process
            ACTS[one.kind](world)
        for law in laws:
            law.moment(world)
    world.dice = dice("rest", seed)
    world.settle()
    for law in laws:
        law.moment(world)
        law.rest(world)


@contextmanager
def _quiet() -> Iterator[None]:
    """What parts log of simulated trouble is no news."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def _listed(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))
