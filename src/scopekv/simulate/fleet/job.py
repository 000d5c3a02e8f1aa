"""One request on its way through an instance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from scopekv.core.eviction import Entry
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
            "block_tokens",
            "bounds",
            "cached_tokens",
            "decode_until",
            "entries",
            "fetched",
            "first_at",
        ),
        *("found", "input_tokens", "instance", "marks", "names", "number", "output_tokens"),
        *("placed", "ready_at", "reservation", "reserved_blocks", "started_at"),
    )

    def __init__(self, number: int, at: float, placed: Placed, names: list[int]) -> None:
        self.number, self.at, self.placed, self.names = number, at, placed, names
        request = placed.request
        self.input_tokens, self.output_tokens = request.input_tokens, request.output_tokens
        self.block_tokens = request.block_tokens
        self.account = placed.tenant.org.to_bytes(4, "big")
        self.bounds = (0, 0)
        self.entries: Sequence[Entry[int]] = ()
        self.fetched: list[tuple[int, int, str]] = []
        self.found: dict[str, int] = {}
        self.cached_tokens = 0
        self.marks: tuple[tuple[int, int], ...] = ()  # see `placing.marks_of`
        self.reservation: Reservation | None = None
        self.instance: Instance | None = None
        self.ready_at = self.started_at = self.first_at = at
        self.decode_until = 0.0
        self.reserved_blocks = 0
