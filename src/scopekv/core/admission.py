"""What is worth writing to an outer tier (L11): not what will hardly be read again."""

from __future__ import annotations

from scopekv.core.reasons import AdmissionReason
from scopekv.errors import Misuse

GHOST_BYTES = 16


class Ghosts:
    """Names of blocks that were offered lately and not written: exact, and no more than a limit.

    Keeps the first 16 bytes of each key (keys are hashes). The oldest is forgotten first.
    Cost: O(1) a step; 16 bytes a key, about 150 with Python's own.
    """

    __slots__ = ("_keys", "_max")

    def __init__(self, keys_max: int) -> None:
        if keys_max < 1:
            raise Misuse("a ghost table holds 1 key or more")
        self._keys: dict[bytes, None] = {}  # in order of arrival
        self._max = keys_max

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, key: bytes) -> None:
        name = key[:GHOST_BYTES]
        self._keys.pop(name, None)
        self._keys[name] = None
        if len(self._keys) > self._max:
            del self._keys[next(iter(self._keys))]

    def take(self, key: bytes) -> bool:
        """Whether the key was there; it is not any more."""
        name = key[:GHOST_BYTES]
        if name not in self._keys:
            return False
        del self._keys[name]
        return True


def expected_worth(*, cost: float, size_bytes: int, expected_uses: float) -> float:
    """Seconds of prefill a byte of a new block will save; compares with EvictionPolicy.worth.

    `expected_uses`: 1 for a private part, more for a document that many may read.
    """
    return expected_uses * cost / size_bytes


class Admission:
    """Decides on each block that leaves the tier above.

    While the tier is filled below `fill_fraction` everything is written. Under pressure: what its
    account's guaranteed share has room for, what is offered a second time while its ghost is
    remembered, and what is worth more than its victim.
    """

    __slots__ = ("_fill_fraction", "_ghosts")

    def __init__(self, *, fill_fraction: float = 0.9, ghosts_max: int = 65_536) -> None:
        if not 0 <= fill_fraction <= 1:
            raise Misuse(f"fill_fraction is from 0 to 1, not {fill_fraction}")
        self._fill_fraction = fill_fraction
        self._ghosts = Ghosts(ghosts_max)

    def decide(
        self,
        key: bytes,
        *,
        used_bytes: int,
        size_bytes: int,
        capacity_bytes: int,
        guaranteed: bool = False,
        worth: float = 0.0,
        victim_worth: float | None = None,
    ) -> AdmissionReason:
        """Return why the block is to be written, or FIRST_USE: it is not, and remembered.

        `guaranteed`: whether its account stays within its own share with it: others' pressure must
        not keep a tenant out (L11). `victim_worth`: of what would have to go; None where that is
        unknown.
        """
        if used_bytes + size_bytes <= capacity_bytes * self._fill_fraction:
            return AdmissionReason.ROOM
        if guaranteed:
            return AdmissionReason.GUARANTEED
        if self._ghosts.take(key):
            return AdmissionReason.SECOND_USE
        if victim_worth is not None and worth > victim_worth:
            return AdmissionReason.WORTH_MORE
        self._ghosts.add(key)
        return AdmissionReason.FIRST_USE

    @property
    def ghosts(self) -> int:
        """How many keys are remembered."""
        return len(self._ghosts)
