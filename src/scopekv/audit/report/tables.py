"""Figures of audits as tables that people read. Knows shapes, and the names of a few figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from scopekv.audit.isolation.cells import KINDS
from scopekv.audit.results import Check, Plain

LABELS = {
    "auc": "AUC",
    "auc_lower95": "AUC, lower 95 %",
    "auc_upper95": "AUC, upper 95 %",
    "control_auc": "AUC of the control",
    "control_n": "n of the control",
    "mde_auc": "Smallest AUC that would show",
    "n": "n",
    "p": "p",
    "ttft_ms": "Time to the first token, ms",
    "p_holm": "p (Holm)",
    "control_p": "p of the control",
}
TIERS = {
    "any": "Any tier",
    "engine": "Engine memory",
    "host": "Host memory",
    "directory": "Directory",
    "valkey": "Valkey",
    "s3": "S3",
}
_ENDS = ("auc_lower95", "auc_upper95")
_TEXT_CHARS_MAX = 600
_SMALL, _LARGE = 1e-3, 1e6


@dataclass(frozen=True, slots=True)
class Interval:
    """An AUC with its interval, 0 to 1 each."""

    low: float
    middle: float
    high: float


@dataclass(frozen=True, slots=True)
class Cell:
    text: str
    number: bool = False
    interval: Interval | None = None
    check: Check | None = None  # shown by its verdict


@dataclass(frozen=True, slots=True)
class Table:
    """`rows`: as many cells as `columns` each; the first cell names its row."""

    caption: str
    columns: tuple[Cell, ...]
    rows: tuple[tuple[Cell, ...], ...]


def label(name: str) -> str:
    """A figure's name in words."""
    words = name.replace("_", " ")
    return LABELS.get(name) or words[:1].upper() + words[1:]


def scalars(figures: Mapping[str, Plain]) -> list[tuple[str, str]]:
    """(label, value) of the figures that are one value, or a row of single values."""
    return [(label(name), text(value)) for name, value in figures.items() if not _deep(value)]


def tables(figures: Mapping[str, Plain]) -> list[Table]:
    """One table for each figure that is rows, or names with values."""
    return [_table(label(name), value) for name, value in figures.items() if _deep(value)]


def matrix(checks: Sequence[Check]) -> Table | None:
    """Checks named `isolation.TIER.KIND` as a table of kinds by tiers; None without any."""
    named = [(check.name.split(".", 2), check) for check in checks]
    found = {
        (parts[2], parts[1]): check
        for parts, check in named
        if len(parts) == 3 and parts[0] == "isolation" and parts[1] in TIERS
    }
    tiers = [tier for tier in TIERS if any(tier == one for _, one in found)]
    rows = []
    for kind in dict.fromkeys(kind for kind, _ in found):
        row = [Cell(KINDS.get(kind, kind.replace("_", " ")))]
        for tier in tiers:
            check = found.get((kind, tier))
            row.append(_cell(None) if check is None else Cell(str(check.tried), check=check))
        rows.append(tuple(row))
    columns = (Cell("Whose text"), *(Cell(TIERS[tier]) for tier in tiers))
    caption = "Forbidden reads tried, by kind of scope and by the tier that held the only copy"
    return Table(caption, columns, tuple(rows)) if rows else None


def text(value: Plain) -> str:
    """One value for people: `1,250`, `2.1e-12`, `yes`; nested ones in one line."""
    match value:
        case None:
            return "–"
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return _decimal(value)
        case str():
            return value
        case Mapping() if not any(_deep(one) for one in value.values()):
            return ", ".join(f"{name.replace('_', ' ')} {text(one)}" for name, one in value.items())
        case Sequence() if not any(_deep(one) for one in value):
            return ", ".join(text(one) for one in value) or "–"
    return _json(value)


def _decimal(value: float) -> str:
    if value == 0 or _SMALL <= abs(value) < _LARGE:
        return f"{value:.3f}".rstrip("0").rstrip(".") if value % 1 else f"{value:,.0f}"
    return f"{value:.1e}"


def _json(value: Plain) -> str:
    found = msgspec.json.encode(value).decode()
    return found if len(found) <= _TEXT_CHARS_MAX else f"{found[:_TEXT_CHARS_MAX]} ... (cut)"


def _deep(value: Plain) -> bool:
    """Whether it takes more than one cell: names with values, or rows of such."""
    if isinstance(value, Mapping):
        return bool(value)
    if isinstance(value, str) or not isinstance(value, Sequence):
        return False
    return any(isinstance(one, Mapping | list | tuple) for one in value)


def _table(caption: str, value: Plain) -> Table:
    if isinstance(value, Mapping):
        if all(isinstance(one, Mapping) for one in value.values()):
            return _records(
                caption,
                [{"": name.replace("_", " "), **_mapping(one)} for name, one in value.items()],
            )
        pairs = [{"figure": label(name), "value": one} for name, one in value.items()]
        return _records(caption, pairs)
    rows = value if isinstance(value, Sequence) and not isinstance(value, str) else []
    return _records(caption, [_mapping(one) for one in rows])


def _mapping(value: Plain) -> dict[str, Plain]:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return {str(place + 1): one for place, one in enumerate(value)}
    return {"value": value}


def _records(caption: str, records: Sequence[Mapping[str, Plain]]) -> Table:
    """An AUC and the ends of its interval become one column. What would take a table of its own in
    a cell is left to `report.json`."""
    names = [
        name
        for name in dict.fromkeys(name for record in records for name in record)
        if not any(_deep(record.get(name)) for record in records)
    ]
    intervals = [_interval(record) for record in records]
    if any(intervals):
        names = [name for name in names if name not in _ENDS]
    columns: list[Cell] = []
    rows: list[list[Cell]] = [[] for _ in records]
    for name in names:
        if name == "auc" and any(intervals):
            columns.append(Cell("AUC and 95 % interval"))
            cells = [Cell(_in_words(found), interval=found) for found in intervals]
        else:
            cells = [_cell(record.get(name)) for record in records]
            columns.append(Cell(label(name), any(cell.number for cell in cells)))
        for row, cell in zip(rows, cells, strict=True):
            row.append(cell)
    return Table(caption, tuple(columns), tuple(tuple(row) for row in rows))


def _cell(value: Plain) -> Cell:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return Cell(text(value), number)


def _interval(record: Mapping[str, Plain]) -> Interval | None:
    middle = _share(record.get("auc"))
    high = _share(record.get("auc_upper95"))
    low = _share(record.get("auc_lower95"))
    if middle is None or high is None:
        return None
    return Interval(middle if low is None else low, middle, high)


def _share(value: Plain) -> float | None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if number and isinstance(value, int | float) and 0 <= value <= 1 else None


def _in_words(found: Interval | None) -> str:
    if found is None:
        return "–"
    low = f"{text(found.low)} to " if found.low != found.middle else "up to "
    return f"{text(found.middle)} ({low}{text(found.high)})"
