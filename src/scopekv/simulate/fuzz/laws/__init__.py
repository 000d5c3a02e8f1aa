"""One class a law, each with a planted bug in tests/sim that it must find."""

from __future__ import annotations

from scopekv.simulate.fuzz.laws.ending import HonestCounters, IndexExact, Progress
from scopekv.simulate.fuzz.laws.keeping import BoundedMemory, Conservation
from scopekv.simulate.fuzz.laws.law import Law, Violation
from scopekv.simulate.fuzz.laws.reading import NoLeak, NoWrongBytes, RevocationHolds

__all__ = ["LAWS", "Law", "Violation", "every_law"]

LAWS: tuple[type[Law], ...] = (
    NoLeak,
    NoWrongBytes,
    RevocationHolds,
    Conservation,
    BoundedMemory,
    Progress,
    HonestCounters,
    IndexExact,
)


def every_law() -> list[Law]:
    """All of them, new: a law remembers what it saw of one world."""
    return [law() for law in LAWS]
