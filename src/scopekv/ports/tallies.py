"""The port of tallies: totals over time, kept for a month."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from scopekv.core.tallies import Place, Tally, Window


class Tallies(Protocol):
    """Totals by step, owner and instance. Thread-safe; every call may block on a disk.

    `add` sums into what is there, all or nothing, and drops what is too old from time to time.
    `window` ends at `now`; nothing older is ever told. `owner`: a uid. `by_owner` is of all
    organisations; `by_start` and `by_instance` are of one, or of all together (None);
    `of_account` is one account's by start. Raises `Unavailable`.
    """

    def add(self, tallies: Mapping[Place, Tally], now: float) -> None: ...
    def by_start(self, window: Window, now: float, owner: str | None) -> Mapping[int, Tally]: ...
    def of_account(self, window: Window, now: float, owner: str) -> Mapping[int, Tally]: ...
    def by_owner(self, window: Window, now: float) -> Mapping[str, Tally]: ...
    def by_instance(self, window: Window, now: float, owner: str | None) -> Mapping[str, Tally]: ...
    def close(self) -> None: ...
