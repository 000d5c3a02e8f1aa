"""Timestamps that were read as one unit and seem to be of another. JSON lines name none.

    Unix times    a moment from 2014 to 2039 in one unit is of no such year in another
    rates         read as ms, there are more requests a second than services have

Nothing is guessed: whoever replays the trace is told, and says which unit it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice

from scopekv.simulate.traces.lines import Lines, read_object, take

UNITS = {"s": 1, "ms": 1000, "us": 1_000_000}  # a second has so many
REQUESTS_FIRST = 1000
_UNIX_SECONDS = (1.4e9, 2.2e9)
# Published traces have up to some hundreds a second; ms with parts are rare.
_RATE_MAX, _RATE_MAX_OF_PARTS = 1000.0, 100.0


def unit_doubt(lines: Lines, per_second: int) -> str:
    """Why the timestamps of JSON lines seem to be of another unit, and what to do; else empty.

    Reads the first lines. Raises Misuse for one that is none.
    """
    read = next(unit for unit, count in UNITS.items() if count == per_second)
    times = list(_times(lines))
    if not times:
        return ""
    span = (max(times) - min(times)) / per_second
    for unit, count in UNITS.items():
        low, high = _UNIX_SECONDS
        if low * count <= min(times) and max(times) < high * count and unit != read:
            return _words(lines, read, unit, len(times), span, "they are Unix times, it seems")
    parts = any(time % 1 for time in times)
    rate = len(times) / span if span else 0.0
    if read == "ms" and rate > (_RATE_MAX_OF_PARTS if parts else _RATE_MAX):
        why = f"that is {rate:,.0f} a second" + (", and they have parts" if parts else "")
        return _words(lines, read, "s", len(times), span, why)
    return ""


def _times(lines: Lines) -> Iterator[float]:
    for text in islice(lines, REQUESTS_FIRST):
        time = take(lines, read_object(lines, text), "timestamp", (int, float))
        if math.isfinite(time):
            yield time


def _words(lines: Lines, read: str, unit: str, count: int, span: float, why: str) -> str:
    return (
        f"{lines.path}: timestamps are read as {read}, so that the first {count} requests come "
        f"within {span:,.3g} s; {why}. If they are in {unit}: --timestamps {unit}; "
        f"if not, --timestamps {read} says so"
    )
