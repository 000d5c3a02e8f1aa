"""What a check says."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """`ERROR`: it does not work, or shares nothing. `WARNING`: it works worse than it could."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """One check. `where`: an instance's name, a file, `registry`. `do`: empty where all is well."""

    check: str
    where: str
    level: Level
    what: str
    do: str = ""


def ok(check: str, where: str, what: str) -> Finding:
    return Finding(check, where, Level.OK, what)


def warning(check: str, where: str, what: str, do: str) -> Finding:
    return Finding(check, where, Level.WARNING, what, do)


def error(check: str, where: str, what: str, do: str) -> Finding:
    return Finding(check, where, Level.ERROR, what, do)
