"""Benchmarks tell how far they are: one line on a terminal, else a line each time."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

from _progress import tell

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "shown"),
    [(io.StringIO(), "turn 1\nturn 2\n"), (Terminal(), "\x1b[Kturn 1\r\x1b[Kturn 2\r")],
    ids=["file", "terminal"],
)
def test_a_file_gets_lines_and_a_terminal_gets_one(
    stream: io.StringIO, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    tell("turn 1")
    tell("turn 2")
    assert stream.getvalue() == shown


def test_no_benchmark_moves_the_cursor_itself() -> None:
    strays = [
        path.name
        for path in BENCHMARKS.glob("*.py")
        if path.name != "_progress.py"
        and re.search(r'end="\\r"|print\(f?"\\r', path.read_text(encoding="utf-8"))
    ]
    assert strays == []
