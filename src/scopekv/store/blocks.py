"""What goes into a tier and what comes out of it: values without behaviour."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto

from scopekv.core.chains import Chain


@dataclass(frozen=True, slots=True)
class Block:
    """A block to be moved. `view` is its slot in host memory: writable, contiguous, full size.

    `parent` is the block hash before it in the same prompt, `depth` the number of blocks before
    it, `cost` the seconds of prefill to make it again: what eviction goes by, 0 where unknown.
    """

    chain: Chain
    block_hash: bytes
    group_idx: int
    view: memoryview = field(repr=False)
    parent: bytes | None = None
    depth: int = 0
    cost: float = 0.0


BlockKey = tuple[Chain, bytes, int]  # chain, block hash, group


class Presence(Enum):
    """Whether a tier has a block. UNKNOWN: it is being looked for; ask again."""

    ABSENT = auto()
    PRESENT = auto()
    UNKNOWN = auto()


@dataclass(frozen=True, slots=True)
class Done:
    """A job that is over: indexes of its blocks that succeeded. Each job is told once."""

    job_id: int
    ok: tuple[int, ...]
    size_bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Purged:
    """How far a purge is. Over when `busy` is 0; failed, and to be asked again, with `error`."""

    removed: int
    busy: int
    error: str | None = None
