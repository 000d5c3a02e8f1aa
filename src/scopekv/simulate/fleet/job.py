"""One request on its way through an instance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from scopekv.core.eviction import Entry
from scopekv.core.prefixes import Mark
from scopekv.core.reservations import Reservation
from scopekv.simulate.fleet.tenants import Placed

if TYPE_CHECKING:
    from scopekv.simulate.fleet.instance import Instance


class Job:
    """`names`: of its blocks. `found`: leading tokens by where they were, nearest first.

    `fetched`: names that come from tiers, `(start, end, tier)` in blocks; `ready_at` when the last
    of them is there. `bounds`: tokens that infinite memory finds, as isolation allows and without.
    """

    __slots__ = (
        *(
            "account",
            "at",
            "bounds",
            "cached_tokens",
            "decode_until",
            "entries",
            "fetched",
            "first_at",
        ),
        *("found", "instance", "marks", "names", "number", "placed", "ready_at", "reservation"),
        *("started_at", "reserved_blocks"),
    )

    def __init__(self, number: int, at: float, placed: Placed, names: list[int]) -> None:
        self.number, self.at, self.placed, self.names = number, at, placed, names
        self.account = placed.tenant.org.to_bytes(4, "big")
        self.bounds = (0, 0)
        self.entries: Sequence[Entry[int]] = ()
        self.fetched: list[tuple[int, int, str]] = []
        self.found: dict[str, int] = {}
        self.cached_tokens = 0
        self.marks: tuple[Mark, ...] = ()
        self.reservation: Reservation | None = None
        self.instance: Instance | None = None
        self.ready_at = self.started_at = self.first_at = at
        self.decode_until = 0.0
        self.reserved_blocks = 0

    @property
    def input_tokens(self) -> int:
        return self.placed.request.input_tokens

    @property
    def output_tokens(self) -> int:
        return self.placed.request.output_tokens

    @property
    def block_tokens(self) -> int:
        return self.placed.request.block_tokens
