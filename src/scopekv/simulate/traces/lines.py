"""The lines of a trace file, plain or .gz, one at a time; errors name the file and the line."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from scopekv.errors import Misuse

LINE_BYTES_MAX = 64 * 1024 * 1024
_GZIP = b"\x1f\x8b"


class Lines:
    """Iterable as often as wanted; each pass reads the file anew, in bounded memory.

    `number`: of the line that was given last, from 1. Blank lines are left out.
    Raises Misuse where the file cannot be read, or a line is over LINE_BYTES_MAX.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.number = 0

    def __iter__(self) -> Iterator[str]:
        self.number = 0
        try:
            with self._open() as file:
                while raw := file.readline(LINE_BYTES_MAX + 1):
                    self.number += 1
                    if len(raw) > LINE_BYTES_MAX:
                        raise self.wrong(f"is longer than {LINE_BYTES_MAX} bytes")
                    if text := raw.decode().strip():
                        yield text
        except (OSError, EOFError, zlib.error) as error:
            reason = getattr(error, "strerror", None) or "it is no whole gzip file"
            raise Misuse(f"the trace {self.path} cannot be read: {reason}") from error
        except UnicodeDecodeError as error:
            raise self.wrong("is no UTF-8 text") from error

    def _open(self) -> BinaryIO:
        with self.path.open("rb") as file:
            packed = file.read(2) == _GZIP
        return cast(BinaryIO, gzip.open(self.path)) if packed else self.path.open("rb")

    def wrong(self, what: str) -> Misuse:
        """An error about the line that was given last."""
        return Misuse(f"{self.path}, line {self.number}: {what}")


def read_object(lines: Lines, text: str) -> dict[str, Any]:
    """The JSON object of a line. Raises Misuse with its place."""
    try:
        found = json.loads(text)
    except ValueError as error:
        raise lines.wrong("is no JSON") from error
    if not isinstance(found, dict):
        raise lines.wrong("is no JSON object")
    return found


def take(lines: Lines, fields: dict[str, Any], name: str, kind: type | tuple[type, ...]) -> Any:
    """A field of a kind. Raises Misuse with its place where it is missing or of another kind."""
    value = fields.get(name)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise lines.wrong(f"has no usable {name!r}; of its format")
    return value
