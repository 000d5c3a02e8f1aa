"""The lines of a trace file, one at a time; errors name the file and the line.

Plain text, or packed with gzip, bzip2 or xz, told by the first bytes, not by the name.
"""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, BinaryIO, cast

from scopekv.errors import Misuse

LINE_BYTES_MAX = 64 * 1024 * 1024
_OPENED = ((b"\x1f\x8b", gzip.open), (b"BZh", bz2.open), (b"\xfd7zXZ\x00", lzma.open))
_UNKNOWN = (
    (b"\x28\xb5\x2f\xfd", "is packed with zstd: unpack it (`zstd -d`), or pack it with gzip"),
    (b"\x04\x22\x4d\x18", "is packed with lz4: unpack it (`lz4 -d`), or pack it with gzip"),
    (b"PK\x03\x04", "is a zip file: unpack it, and give the file in it"),
    (b"PAR1", "is a Parquet file: write its rows as JSON lines"),
    (b"\xff\xfe", "is UTF-16: write it as UTF-8"),
    (b"\xfe\xff", "is UTF-16: write it as UTF-8"),
)
_BOM = b"\xef\xbb\xbf"


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
                    if self.number == 1:
                        raw = raw.removeprefix(_BOM)
                    if text := raw.decode().strip():
                        yield text
        except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
            reason = getattr(error, "strerror", None) or "what is packed in it is torn or cut off"
            raise Misuse(f"the trace {self.path} cannot be read: {reason}") from error
        except UnicodeDecodeError as error:
            raise self.wrong("is no UTF-8 text") from error

    def _open(self) -> AbstractContextManager[BinaryIO]:
        if self.path.exists() and not self.path.is_file() and not self.path.is_dir():
            raise Misuse(f"{self.path} is no file: a trace is read more than once, from a file")
        with self.path.open("rb") as file:
            begin = file.read(8)
        for magic, what in _UNKNOWN:
            if begin.startswith(magic):
                raise Misuse(f"the trace {self.path} {what}")
        for magic, unpack in _OPENED:
            if begin.startswith(magic):
                return cast(BinaryIO, unpack(self.path))
        return self.path.open("rb")

    def wrong(self, what: str) -> Misuse:
        """An error about the line that was given last."""
        return Misuse(f"{self.path}, line {self.number}: {what}")


def read_object(lines: Lines, text: str) -> dict[str, Any]:
    """The JSON object of a line. Raises Misuse with its place."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise lines.wrong("is no whole JSON object: one a line, as `jq -c .` writes it") from error
    if not isinstance(found, dict):
        raise lines.wrong("is no JSON object: one a line")
    return found


def take(lines: Lines, fields: dict[str, Any], name: str, kind: type | tuple[type, ...]) -> Any:
    """A field of a kind. Raises Misuse with its place where it is missing or of another kind."""
    value = fields.get(name)
    if not isinstance(value, kind) or isinstance(value, bool):
        what = "a list" if kind is list else "a whole number" if kind is int else "a number"
        raise lines.wrong(f"has no {name!r} that is {what}")
    return value


def whole(lines: Lines, value: object, name: str, least: int = 0) -> int:
    """A whole number, as JSON or CSV have it (also 12.0). Raises Misuse with its place."""
    try:
        found = float(value) if isinstance(value, str | int | float) else -1
        if isinstance(value, bool) or not least <= found < 1 << 40 or found % 1:
            raise ValueError
    except (ValueError, OverflowError) as error:
        raise lines.wrong(f"has no {name!r} that is a whole number from {least}") from error
    return int(found)
