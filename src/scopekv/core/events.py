"""What engines tell of their caches: batches of events, and whole snapshots. No tokens, no keys.

A snapshot travels as `encode("scopekv/snapshot/1", instance, sequence, sent, [(medium, blocks),
...])`, where blocks are 8 bytes for each block held, twice where an engine holds a block twice, and
`sent` is the engine's wall clock in microseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from scopekv.core.block_hashes import unpack
from scopekv.core.encoding import Value, decode, encode
from scopekv.errors import Misuse

SNAPSHOT_DOMAIN = "scopekv/snapshot/1"


class Medium(IntEnum):
    """Where a block is in an instance, nearest first."""

    ENGINE = 0
    HOST = 1
    OUTER = 2


_WIRE = {None: Medium.ENGINE, "GPU": Medium.ENGINE, "CPU": Medium.HOST}


def medium_of(name: str | None) -> Medium:
    """The medium that vLLM's events name; all beyond host memory is one."""
    return _WIRE.get(name, Medium.OUTER)


@dataclass(frozen=True, slots=True)
class Stored:
    """These blocks (short hashes) came to be in a medium, once more each."""

    medium: Medium
    hashes: Sequence[int]


@dataclass(frozen=True, slots=True)
class Removed:
    """These blocks left a medium, once each."""

    medium: Medium
    hashes: Sequence[int]


@dataclass(frozen=True, slots=True)
class Cleared:
    """Engine memory was emptied; vLLM does not say whether host memory was, too."""


Event = Stored | Removed | Cleared


@dataclass(frozen=True, slots=True)
class Batch:
    """What one engine step changed.

    `sequence`: from 0 at each engine start, without gaps. `sent`: the engine's wall clock in
    seconds, which tells a repeated batch from one of a new life.
    """

    sequence: int
    sent: float
    events: tuple[Event, ...]

    @property
    def blocks(self) -> int:
        """How many hashes it holds."""
        return sum(len(event.hashes) for event in self.events if not isinstance(event, Cleared))


@dataclass(frozen=True, slots=True, repr=False)
class Snapshot:
    """All that an instance holds after every batch below `sequence` and before every other.

    `instance`: new at every engine start. `sequence` None: the engine publishes no events.
    `sent`: the engine's wall clock in seconds, as of batches. `blocks`: short hashes by medium, a
    block held twice twice; None: not asked for.
    """

    instance: str
    sequence: int | None
    sent: float
    blocks: Mapping[Medium, Sequence[int]] | None


def encode_snapshot(
    instance: str,
    sequence: int | None,
    sent: float,
    media: Iterable[tuple[str, bytes]] | None,
) -> bytes:
    """The wire form. `media`: vLLM's name of each medium with its packed blocks."""
    listed: Value = None if media is None else [(name, packed) for name, packed in media]
    return encode(SNAPSHOT_DOMAIN, instance, sequence, int(sent * 1e6), listed)


def decode_snapshot(data: bytes) -> Snapshot:
    """Read the wire form. Raises `Misuse` for anything else. Cost: a copy of the blocks."""
    fields = decode(SNAPSHOT_DOMAIN, data)
    if len(fields) != 4:
        raise Misuse(f"a snapshot has 4 fields, not {len(fields)}")
    instance, sequence, micros, listed = fields
    if not isinstance(instance, str) or not isinstance(micros, int):
        raise Misuse("a snapshot names its instance and its time")
    if not (sequence is None or (isinstance(sequence, int) and sequence >= 0)):
        raise Misuse("a snapshot's sequence number starts from 0")
    sent = micros / 1e6
    if listed is None:
        return Snapshot(instance, sequence, sent, None)
    if not isinstance(listed, tuple):
        raise Misuse("a snapshot lists its media")
    blocks: dict[Medium, Sequence[int]] = {}
    for entry in listed:
        medium, hashes = _medium(entry)
        blocks[medium] = [*blocks[medium], *hashes] if medium in blocks else hashes
    return Snapshot(instance, sequence, sent, blocks)


def _medium(entry: Value) -> tuple[Medium, Sequence[int]]:
    if not isinstance(entry, tuple) or len(entry) != 2:
        raise Misuse("a medium of a snapshot has a name and blocks")
    name, packed = entry
    if not isinstance(name, str) or not isinstance(packed, bytes):
        raise Misuse("a medium of a snapshot has a name and blocks")
    return medium_of(name), unpack(packed)
