"""Azure's LLM inference traces of 2023 (Splitwise, ISCA'24): arrivals and lengths, no blocks.

    TIMESTAMP,ContextTokens,GeneratedTokens

No request shares anything with another here: the traces do not say what did.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from scopekv.errors import Misuse
from scopekv.simulate.traces.lines import Lines
from scopekv.simulate.traces.request import TracedRequest

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens"
BLOCK_TOKENS = 16
_MICROSECOND_DIGITS = 26  # the seventh digit of the fraction is of no use to anyone


def read_azure(lines: Lines) -> Iterator[TracedRequest]:
    """Requests in the file's order; the first is at 0 s."""
    begin: datetime | None = None
    latest, used = 0.0, 0
    for text in lines:
        if text == HEADER:
            continue
        try:
            stamp, size, output = text.split(",")
            at = datetime.fromisoformat(stamp[:_MICROSECOND_DIGITS])
            begin = begin or at
            seconds, blocks = (at - begin).total_seconds(), -(-int(size) // BLOCK_TOKENS)
            if seconds < latest:
                raise lines.wrong("is earlier than the line above it: sort the file")
            request = TracedRequest(
                seconds, int(size), int(output), BLOCK_TOKENS, range(used, used + blocks)
            )
        except (ValueError, Misuse) as error:
            if isinstance(error, Misuse) and str(lines.path) in str(error):
                raise
            raise lines.wrong(f"is no arrival with two lengths: {error}") from error
        latest, used = seconds, used + blocks
        yield request
