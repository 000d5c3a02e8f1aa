"""How far a benchmark is, on stderr: stdout is for what it found."""

from __future__ import annotations

import sys

_CLEAR = "\x1b[K"  # ANSI: the rest of the line


def tell(line: str) -> None:
    """Tell it in the place of the line before; where stderr is no terminal, below it."""
    if sys.stderr.isatty():
        print(f"{_CLEAR}{line}", end="\r", file=sys.stderr, flush=True)
    else:
        print(line, file=sys.stderr, flush=True)
