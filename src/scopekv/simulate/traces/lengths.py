"""CSV files with arrivals and lengths, and no blocks: nothing in them shares anything.

    TIMESTAMP,ContextTokens,GeneratedTokens                         Azure, 2023 and 2024 (Splitwise)
    Timestamp,Model,Request tokens,Response tokens,...              BurstGPT; also with Session ID
    arrived_at,num_prefill_tokens,num_decode_tokens                 Vidur

Columns are found by their names. Times are seconds, or dates (without a zone: UTC).
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from datetime import UTC, datetime

from scopekv.simulate.traces.lines import Lines, whole
from scopekv.simulate.traces.naming import Numbers
from scopekv.simulate.traces.ordering import by_time
from scopekv.simulate.traces.request import UNKNOWN, TracedRequest

COLUMNS = (
    ("TIMESTAMP", "ContextTokens", "GeneratedTokens", ""),
    ("Timestamp", "Request tokens", "Response tokens", "Session ID"),
    ("arrived_at", "num_prefill_tokens", "num_decode_tokens", "session_id"),
)
BLOCK_TOKENS = 16


def columns_of(header: str) -> list[int] | None:
    """Where time, prompt, answer and conversation (-1: nowhere) stand; None: no such file."""
    names = _cells(header)
    for needed in COLUMNS:
        if set(needed[:3]) <= set(names):
            return [names.index(name) if name in names else -1 for name in needed]
    return None


def read_lengths(lines: Lines) -> Iterator[TracedRequest]:
    """Requests in order of time, the first at 0 s. Raises Misuse for a line that is none."""
    for at, _, one in by_time(lines, _rows(lines)):
        size, output, ids, session = one
        yield TracedRequest(at, size, output, BLOCK_TOKENS, ids, session)


def _rows(lines: Lines) -> Iterator[tuple[float, tuple[int, int, range, int]]]:
    header, names, places, used = "", [], None, 0
    sessions = Numbers()
    for text in lines:
        if places is None:
            header, names, places = text, _cells(text), columns_of(text)
        if text == header:  # once more where files were joined
            continue
        if places is None:
            raise lines.wrong("follows no header with the columns of a trace")
        cells, (time, prompt, answer, session) = _cells(text), places
        if len(cells) != len(names):
            raise lines.wrong("has another number of cells than the header")
        size = whole(lines, cells[prompt], names[prompt], 1)
        output = whole(lines, cells[answer], names[answer])
        blocks = -(-size // BLOCK_TOKENS)
        name = cells[session] if session >= 0 else None
        number = UNKNOWN if name is None else sessions.of(name) if name else sessions.new()
        yield _seconds(lines, cells[time]), (size, output, range(used, used + blocks), number)
        used += blocks


def _seconds(lines: Lines, text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        try:
            at = datetime.fromisoformat(text)
        except ValueError as error:
            raise lines.wrong("has a time that is no number of seconds and no date") from error
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    if not math.isfinite(found):
        raise lines.wrong("has a time out of all bounds")
    return found


def _cells(text: str) -> list[str]:
    try:
        return [cell.strip() for cell in next(csv.reader([text], strict=True))]
    except (csv.Error, StopIteration):
        return []
