"""English and Korean. English is in the pages; Korean is a table by the English text."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from scopekv.console.korean import KOREAN
from scopekv.console.words import FIXES_IN_KOREAN, WORDS


class Code(StrEnum):
    ENGLISH = "en"
    KOREAN = "ko"


NAMES = {Code.ENGLISH: "English", Code.KOREAN: "한국어"}


@dataclass(frozen=True, slots=True)
class Language:
    """Texts and figures in one language."""

    code: Code

    def text(self, english: str, **values: object) -> str:
        """The text in this language, with `{names}` filled in. English where it is unknown."""
        found = KOREAN.get(english, english) if self.code is Code.KOREAN else english
        return found.format(**values) if values else found

    def word(self, code: str) -> str:
        """What people call a closed code; one that is not known stays as it is."""
        found = WORDS.get(code)
        return code if found is None else found[self.code is Code.KOREAN]

    def fix(self, cause: str, english: str) -> str:
        """What to do about a cause of a miss."""
        return FIXES_IN_KOREAN.get(cause, english) if self.code is Code.KOREAN else english

    def seconds(self, value: float | None) -> str:
        """A duration in the unit that suits it."""
        if value is None:
            return "–"
        units: tuple[tuple[float, str, Callable[[float], str]], ...] = (
            (3600, self.text("h"), lambda v: f"{v / 3600:,.1f}"),
            (60, self.text("min"), lambda v: f"{v / 60:,.1f}"),
            (1, self.text("s"), lambda v: f"{v:,.1f}"),
        )
        for least, unit, written in units:
            if value >= least:
                return f"{written(value)} {unit}"
        return f"{value * 1000:,.0f} {self.text('ms')}"


def number(value: float | None) -> str:
    """A whole number with thousands apart."""
    return "–" if value is None else f"{value:,.0f}"


def percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"


def moment(seconds: float | None) -> str:
    """A Unix time, in UTC."""
    if seconds is None:
        return "–"
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))


def language_of(chosen: str | None, accepted: str) -> Language:
    """The one that was chosen, else the one that the browser likes best (RFC 9110, 12.5.4)."""
    if chosen in set(Code):
        return Language(Code(chosen))
    best, weight = Code.ENGLISH, 0.0
    for item in accepted.split(",")[:20]:
        tag, _, parameter = item.strip().partition(";")
        name = tag.strip().lower().partition("-")[0]
        try:
            given = float(parameter.strip().removeprefix("q=") or 1)
        except ValueError:
            continue
        if name in set(Code) and given > weight:
            best, weight = Code(name), given
    return Language(best)
