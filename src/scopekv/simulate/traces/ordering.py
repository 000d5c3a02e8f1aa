"""Requests in order of time, whatever the order of the lines: some thousands are held back."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import TypeVar

from scopekv.simulate.traces.lines import Lines

HELD_MAX = 16_384
One = TypeVar("One")
_SORT = "sort the file by time, JSON lines with `jq -sc 'sort_by(.timestamp)[]'`"


def by_time(lines: Lines, found: Iterable[tuple[float, One]]) -> Iterator[tuple[float, int, One]]:
    """(time since the first, number of the line, what was found), the earliest first.

    `found`: time in any unit, since whenever, as the lines are read. Those of one moment stay in
    their order.
    Raises Misuse for a line that comes more than HELD_MAX requests late.
    """
    held: list[tuple[float, int, One]] = []
    began: float | None = None
    latest = float("-inf")
    for at, one in found:
        if at < latest:
            raise lines.wrong(f"is of a time long before those of lines above it: {_SORT}")
        heapq.heappush(held, (at, lines.number, one))
        if len(held) > HELD_MAX:
            latest, number, first = heapq.heappop(held)
            began = latest if began is None else began
            yield latest - began, number, first
    held.sort(key=lambda each: each[:2])
    for at, number, one in held:
        began = at if began is None else began
        yield at - began, number, one
