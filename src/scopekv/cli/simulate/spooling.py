"""A trace that comes through a pipe becomes a file: it is read more than once."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO

from scopekv.errors import ConfigError

STANDARD_INPUT = "-"


@contextmanager
def spooled(trace: str) -> Iterator[str]:
    """The name of what to read: `trace`, or of a copy where that is `-` or a pipe (`<(zstdcat F)`).

    The copy is gone afterwards. Raises ConfigError where it cannot be made.
    """
    path = Path(trace)
    if trace != STANDARD_INPUT and (not path.exists() or path.is_file() or path.is_dir()):
        yield trace
        return
    with TemporaryDirectory(prefix="scopekv-") as folder:
        copy = Path(folder) / ("standard-input" if trace == STANDARD_INPUT else path.name)
        try:
            if trace == STANDARD_INPUT:
                _copy(sys.stdin.buffer, copy)
            else:
                with path.open("rb") as source:
                    _copy(source, copy)
        except OSError as error:
            raise ConfigError(
                f"cannot copy the trace {trace[:200]} to {copy}: {error.strerror}; "
                "give a file, or set TMPDIR to a folder with room"
            ) from error
        yield str(copy)


def _copy(source: BinaryIO, to: Path) -> None:
    with to.open("wb") as file:
        shutil.copyfileobj(source, file)
