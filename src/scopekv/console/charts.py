"""Charts as numbers: where lines, bars, ticks and labels stand. Templates draw them as SVG."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 720.0, 220.0
LEFT, RIGHT, TOP, BOTTOM = 70.0, 12.0, 12.0, 28.0
LINES = 4  # horizontal grid lines, the base not counted


@dataclass(frozen=True, slots=True)
class Mark:
    """A label at a place of an axis."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Bar:
    x: float
    y: float
    width: float
    height: float
    kind: str
    title: str


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart in a `WIDTH` by `HEIGHT` box. `lines`: SVG paths by kind; gaps are gaps."""

    rows: tuple[Mark, ...]
    columns: tuple[Mark, ...]
    bars: tuple[Bar, ...] = ()
    lines: tuple[tuple[str, str], ...] = ()
    dots: tuple[tuple[float, float], ...] = ()
    empty: bool = False
    width: float = WIDTH
    height: float = HEIGHT
    left: float = LEFT
    right: float = WIDTH - RIGHT
    base: float = HEIGHT - BOTTOM


def rate_chart(starts: Sequence[int], rates: Sequence[float | None], step: int) -> Chart:
    """A share from 0 to 1 over time, as a line."""
    width = (WIDTH - LEFT - RIGHT) / len(starts)
    points = [
        None if rate is None else (LEFT + (place + 0.5) * width, _y(rate, 1.0))
        for place, rate in enumerate(rates)
    ]
    dots = [
        point
        for place, point in enumerate(points)
        if point is not None
        and (place == 0 or points[place - 1] is None)
        and (place + 1 == len(points) or points[place + 1] is None)
    ]
    return Chart(
        rows=tuple(Mark(_y(n / LINES, 1.0), f"{100 * n / LINES:.0f} %") for n in range(LINES + 1)),
        columns=_times(starts, step),
        lines=(("rate", _path(points)),),
        dots=tuple(dots),
        empty=all(rate is None for rate in rates),
    )


def stacked_chart(
    starts: Sequence[int],
    layers: Mapping[str, Sequence[int]],
    step: int,
    title: Callable[[int, str, int], str],
) -> Chart:
    """Counts over time, one on top of the other. `layers`: from the base up, by kind.

    `title` names a bar: its start, its kind, its count.
    """
    totals = [sum(values) for values in zip(*layers.values(), strict=True)]
    top = _round_up(max(totals, default=0))
    width = (WIDTH - LEFT - RIGHT) / len(starts)
    bars: list[Bar] = []
    for place, start in enumerate(starts):
        below = 0
        for kind, values in layers.items():
            count = values[place]
            if count:
                upper, lower = _y(below + count, top), _y(below, top)
                x = LEFT + place * width + width * 0.1
                label = title(start, kind, count)
                bars.append(Bar(x, upper, width * 0.8, lower - upper, kind, label))
            below += count
    rows = tuple(Mark(_y(top * n / LINES, top), short(top * n / LINES)) for n in range(LINES + 1))
    return Chart(rows, _times(starts, step), tuple(bars), empty=not any(totals))


def short(value: float) -> str:
    """A count in at most four characters or so: 950, 1.2k, 35M."""
    for least, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= least:
            scaled = value / least
            digits = 0 if scaled >= 100 or scaled == int(scaled) else 1
            return f"{scaled:.{digits}f}{unit}"
    return f"{value:g}"


def _times(starts: Sequence[int], step: int) -> tuple[Mark, ...]:
    """About six labels, each at the middle of its step; days where steps are days."""
    form = "%m-%d" if step >= 86_400 else "%H:%M"
    every = max(1, len(starts) // 6)
    width = (WIDTH - LEFT - RIGHT) / len(starts)
    return tuple(
        Mark(LEFT + (place + 0.5) * width, time.strftime(form, time.gmtime(start)))
        for place, start in enumerate(starts)
        if place % every == every // 2
    )


def _y(value: float, top: float) -> float:
    return round(HEIGHT - BOTTOM - value / top * (HEIGHT - TOP - BOTTOM), 2)


def _round_up(value: float) -> float:
    """The least of 1, 2, 4, 5, 8 times a power of ten that is not below; 4 at least."""
    if value <= LINES:
        return float(LINES)
    power = 10 ** math.floor(math.log10(value))
    return float(next(n * power for n in (1, 2, 4, 5, 8, 10) if n * power >= value))


def _path(points: Sequence[tuple[float, float] | None]) -> str:
    words: list[str] = []
    drawing = False
    for point in points:
        if point is not None:
            words.append(f"{'L' if drawing else 'M'}{point[0]:.1f} {point[1]:.1f}")
        drawing = point is not None
    return " ".join(words)
