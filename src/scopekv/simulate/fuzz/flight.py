"""One request on its way: what it asks for, what it was granted, how far it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from scopekv.core.encoding import encode_tokens
from scopekv.core.enforcement import Verdict
from scopekv.core.reservations import InstanceLoad, Reservation
from scopekv.core.tickets import Grant
from scopekv.simulate.fuzz.oracle import Label, Text

BLOCK_TOKENS = 4


class Stage(Enum):
    SENT = auto()
    LEASES = auto()  # waits for keys
    LOOKS = auto()  # asks memory and tiers, block by block
    LOADS = auto()  # waits for a tier
    OVER = auto()


@dataclass(slots=True)
class Load:
    """A block on its way from a tier."""

    tier: int
    job_id: int
    slot: bytearray
    done: bool | None = None  # None: under way


@dataclass(slots=True, eq=False)
class Flight:
    """A request. `texts`: whose its tokens are; `allowed`: what its caller may read (oracle)."""

    number: int
    gateway: int
    engine: int
    tokens: Sequence[int]
    texts: tuple[Text, ...]
    allowed: frozenset[Label]
    ticket: str | None
    queue: InstanceLoad  # where its gateway counts it
    reservation: Reservation
    due: float
    stage: Stage = Stage.SENT
    writer: int = 0
    verdict: Verdict | None = None
    hashes: list[bytes] = field(default_factory=list)
    at: int = 0  # blocks looked at so far
    asked: int = 0  # how often the present question was put
    steps: int = 0
    load: Load | None = None
    reused: int = 0  # blocks read in the end
    cached_tokens: int | None = None  # as the engine counts them
    packed: bytes = b""

    def __post_init__(self) -> None:
        self.packed = encode_tokens(self.tokens)

    @property
    def over(self) -> bool:
        return self.stage is Stage.OVER

    @property
    def waits(self) -> bool:
        """Whether it has not arrived at its engine yet."""
        return self.stage is Stage.SENT

    @property
    def grants(self) -> Sequence[Grant]:
        ticket = self.verdict.ticket if self.verdict is not None else None
        return () if ticket is None else ticket.grants

    def prefix(self, blocks: int) -> bytes:
        """The first so many blocks' tokens, 4 bytes each."""
        return self.packed[: 4 * BLOCK_TOKENS * blocks]
