"""The port of tallies: totals over time, kept for a month."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from scopekv.core.tallies import Place, Tally, Window


class Tallies(Protocol):
    """Totals by step, owner and instance. Thread-safe; every call may block on a disk.

    `add` sums into what is there and drops what is older than its window; all or nothing.
    `owner` is an organisation's or an account's uid; None: all organisations. `window` ends at
    `now`. Raises `Unavailable`.
    """

    def add(self, tallies: Mapping[Place, Tally], now: float) -> None: ...
    def by_start(
        self, window: Window, now: float, owner: str | None, *, account: bool
    ) -> Mapping[int, Tally]: ...
    def by_owner(self, window: Window, now: float) -> Mapping[str, Tally]: ...
    def by_instance(self, window: Window, now: float, owner: str | None) -> Mapping[str, Tally]: ...
    def close(self) -> None: ...
