"""What engines tell of their caches: batches of events, and whole snapshots. No tokens, no keys.

A snapshot travels as

    encode("scopekv/snapshot/2", instance, sequence, sent, [(medium, blocks), ...],
           (chunk_tokens, chunk_bytes, [(medium, store, latency, bandwidth, suspended, samples,
                                         spread), ...]))

Blocks are 8 bytes for each block held, twice where an engine holds a block twice; `sent` is the
engine's wall clock in microseconds, latency in nanoseconds, bandwidth in bytes a second, spread in
thousandths.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from scopekv.core.block_hashes import pack, unpack
from scopekv.core.encoding import Value, decode, encode
from scopekv.core.speeds import TierSpeed
from scopekv.errors import Misuse

SNAPSHOT_DOMAIN = "scopekv/snapshot/2"


class Medium(IntEnum):
    """Where a block is for an instance. Those after host memory are outer tiers."""

    ENGINE = 0
    HOST = 1
    DIRECTORY = 2
    VALKEY = 3
    S3 = 4

    @property
    def wire(self) -> str:
        """What events and snapshots call it: vLLM's names, then those of object stores."""
        return _NAMES[self]


_NAMES = ("GPU", "CPU", "directory", "valkey", "s3")
_WIRE: dict[str | None, Medium] = {None: Medium.ENGINE} | dict(zip(_NAMES, Medium, strict=True))


def medium_of(name: str | None) -> Medium | None:
    """The medium that an event names; None for one that is no place of ours."""
    return _WIRE.get(name)


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


@dataclass(frozen=True, slots=True)
class OuterTier:
    """One outer tier of an instance. `store`: equal for those who share it; empty: its own."""

    medium: Medium
    store: bytes
    speed: TierSpeed


@dataclass(frozen=True, slots=True)
class OuterTiers:
    """Where an instance looks beyond host memory, nearest first.

    Host memory and these hold chunks, each under the hash of its last block.
    """

    chunk_tokens: int
    chunk_bytes: int
    nearest: tuple[OuterTier, ...]

    def __post_init__(self) -> None:
        if self.chunk_tokens < 1 or self.chunk_bytes < 1:
            raise Misuse("a chunk has tokens and bytes")


@dataclass(frozen=True, slots=True, repr=False)
class Snapshot:
    """All that an instance holds after every batch below `sequence` and before every other.

    `instance`: new at every engine start. `sequence` None: the engine publishes no events.
    `sent`: the engine's wall clock in seconds, as of batches. `blocks`: short hashes by medium, a
    block held twice twice; None: not asked for. `tiers` None: the engine has no host memory.
    """

    instance: str
    sequence: int | None
    sent: float
    blocks: Mapping[Medium, Sequence[int]] | None
    tiers: OuterTiers | None = None


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """The wire form. Cost: a copy of the blocks."""
    blocks, tiers = snapshot.blocks, snapshot.tiers
    listed: Value = None
    if blocks is not None:
        listed = [(medium.wire, pack(hashes)) for medium, hashes in blocks.items()]
    outer: Value = None
    if tiers is not None:
        outer = (tiers.chunk_tokens, tiers.chunk_bytes, [_tier_fields(t) for t in tiers.nearest])
    micros = int(snapshot.sent * 1e6)
    return encode(SNAPSHOT_DOMAIN, snapshot.instance, snapshot.sequence, micros, listed, outer)


def _tier_fields(tier: OuterTier) -> Value:
    speed = tier.speed
    latency, bandwidth = int(speed.latency_seconds * 1e9), max(1, int(speed.bytes_per_second))
    spread = int(speed.spread * 1000)
    name = tier.medium.wire
    return (name, tier.store, latency, bandwidth, int(speed.suspended), speed.samples, spread)


def decode_snapshot(data: bytes) -> Snapshot:
    """Read the wire form. Raises `Misuse` for anything else. Cost: a copy of the blocks.

    Media that are no places of ours are left out.
    """
    match decode(SNAPSHOT_DOMAIN, data):
        case (str(instance), None | int() as sequence, int(micros), listed, outer):
            if sequence is not None and sequence < 0:
                raise Misuse("a snapshot's sequence number starts from 0")
            blocks = None if listed is None else _blocks(listed)
            return Snapshot(instance, sequence, micros / 1e6, blocks, _tiers(outer))
    raise Misuse("a snapshot has an instance, a sequence number, a time, blocks and tiers")


def _blocks(listed: Value) -> dict[Medium, Sequence[int]]:
    blocks: dict[Medium, Sequence[int]] = {}
    for entry in listed if isinstance(listed, tuple) else (listed,):
        match entry:
            case (str(name), bytes(packed)):
                medium = medium_of(name)
                if medium in blocks:
                    raise Misuse("a snapshot names a medium twice")
                if medium is not None:
                    blocks[medium] = unpack(packed)
            case _:
                raise Misuse("a medium of a snapshot has a name and blocks")
    return blocks


def _tiers(outer: Value) -> OuterTiers | None:
    match outer:
        case None:
            return None
        case (int(tokens), int(size), tuple(listed)):
            found = [_tier(entry) for entry in listed]
            return OuterTiers(tokens, size, tuple(tier for tier in found if tier is not None))
    raise Misuse("a snapshot's tiers have tokens and bytes of a chunk, and a list")


def _tier(entry: Value) -> OuterTier | None:
    match entry:
        case (str(name), bytes(store), int(nanos), int(rate), int(suspended), int(n), int(spread)):
            medium = medium_of(name)
            if medium is None:
                return None
            speed = TierSpeed(nanos / 1e9, float(rate), suspended != 0, n, spread / 1000)
            return OuterTier(medium, store, speed)
    raise Misuse("a tier of a snapshot has a name, a store and a speed")
