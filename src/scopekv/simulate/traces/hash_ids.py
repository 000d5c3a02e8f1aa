"""JSON lines with `hash_ids`: Mooncake's traces (FAST'25), and what others write in its form.

    {"timestamp": ms, "input_length": n, "output_length": n, "hash_ids": [...]}
    and, beyond Mooncake: "block_size" (else 512), "session" (a number from 0)

Ids are numbers, or hexadecimal strings (keyed hashes).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from scopekv.errors import Misuse
from scopekv.simulate.traces.lines import Lines, read_object, take
from scopekv.simulate.traces.request import UNKNOWN, TracedRequest

BLOCK_TOKENS = 512


def read_hash_ids(lines: Lines) -> Iterator[TracedRequest]:
    """Requests in the file's order. Raises Misuse for a line that is none, or goes back in time."""
    latest = 0.0
    for text in lines:
        fields = read_object(lines, text)
        at = take(lines, fields, "timestamp", (int, float)) / 1000.0
        if not latest <= at < float("inf"):
            raise lines.wrong(f"is of {at} s, before the line above it ({latest} s): sort the file")
        latest = at
        session = fields.get("session", UNKNOWN)
        try:
            yield TracedRequest(
                at_seconds=at,
                input_tokens=take(lines, fields, "input_length", int),
                output_tokens=take(lines, fields, "output_length", int),
                block_tokens=int(fields.get("block_size", BLOCK_TOKENS)),
                block_ids=_numbers(lines, take(lines, fields, "hash_ids", list)),
                session=session if isinstance(session, int) else UNKNOWN,
            )
        except Misuse as error:
            raise (error if str(lines.path) in str(error) else lines.wrong(str(error))) from error


def _numbers(lines: Lines, ids: list[Any]) -> Sequence[int]:
    if all(type(one) is int for one in ids):
        return ids
    try:
        return [int(one, 16) for one in ids]
    except (TypeError, ValueError) as error:
        raise lines.wrong("has hash_ids that are no numbers or hexadecimal strings") from error
