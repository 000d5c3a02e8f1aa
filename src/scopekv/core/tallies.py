"""Totals of answered requests, by time, owner and instance: numbers only, never a prompt or name.

A tally is a sum of counts. Adding is the only thing done to it, so any order of additions and any
grouping give the same totals.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from operator import add

from scopekv.core.scopes import ScopeKind
from scopekv.core.speeds import PrefillCurve
from scopekv.core.values import light_value
from scopekv.errors import Misuse

SHARED_KINDS = (ScopeKind.DOCUMENT, ScopeKind.ORG)  # scopes that several callers are in


class Medium(StrEnum):
    """Where cached tokens came from, as far as the engine told."""

    MEMORY = "memory"  # of the engine or its host
    DIRECTORY = "directory"
    VALKEY = "valkey"
    S3 = "s3"
    UNTOLD = "untold"  # a streamed answer: the engine tells in whole ones alone


COUNTS = (
    *("requests", "hits", "input_tokens", "cached_tokens"),
    *("first_token_requests", "first_token_ms"),
    *("saved_ms", "shared_tokens", "shared_saved_ms", "isolation_tokens", "isolation_ms"),
    *(f"input_{kind.value}" for kind in ScopeKind),
    *(f"cached_{kind.value}" for kind in ScopeKind),
    *(f"from_{medium.value}" for medium in Medium),
)
_PLACES = {name: place for place, name in enumerate(COUNTS)}
_INPUT = {kind: _PLACES[f"input_{kind.value}"] for kind in ScopeKind}
_CACHED = {kind: _PLACES[f"cached_{kind.value}"] for kind in ScopeKind}
_FROM = {medium: _PLACES[f"from_{medium.value}"] for medium in Medium}


class Window(StrEnum):
    """How far back one looks."""

    HOUR = "hour"
    DAY = "day"
    MONTH = "month"


@dataclass(frozen=True, slots=True)
class Steps:
    """A window in steps: so many, so long each. Older ones are dropped."""

    seconds: int
    count: int

    def start_of(self, at: float) -> int:
        """The Unix second at which the step that holds `at` began."""
        return int(at) // self.seconds * self.seconds

    def starts(self, now: float) -> range:
        """The starts of the window that ends with the step of now."""
        last = self.start_of(now)
        return range(last - (self.count - 1) * self.seconds, last + 1, self.seconds)


WINDOWS = {
    Window.HOUR: Steps(60, 60),
    Window.DAY: Steps(900, 96),
    Window.MONTH: Steps(86_400, 30),
}


@light_value()
class Tally:
    """Whole numbers in the order of `COUNTS`."""

    values: tuple[int, ...] = (0,) * len(COUNTS)

    def __post_init__(self) -> None:
        if len(self.values) != len(COUNTS):
            raise Misuse(f"a tally has {len(COUNTS)} counts, not {len(self.values)}")

    @classmethod
    def of(cls, **counts: int) -> Tally:
        """These counts; all others are 0. Raises `KeyError` for a name that is none."""
        values = [0] * len(COUNTS)
        for name, value in counts.items():
            values[_PLACES[name]] = value
        return cls(tuple(values))

    def __getitem__(self, name: str) -> int:
        return self.values[_PLACES[name]]

    def __add__(self, other: Tally) -> Tally:
        return Tally(tuple(map(add, self.values, other.values)))  # both have all counts

    @property
    def token_hit_rate(self) -> float | None:
        """Input tokens read from the cache over all input tokens; None without any."""
        return self.rate("cached_tokens", "input_tokens")

    def rate(self, part: str, whole: str) -> float | None:
        """One count over another; None where that one is 0."""
        return self[part] / self[whole] if self[whole] else None


class Whose(IntEnum):
    """What a tally sums up. Each is kept apart, so that no page adds up what others need."""

    INSTANCE = 0  # of all organisations, on one instance; `owner` is ""
    ORG = 1  # of an organisation, on all instances; `instance` is ""
    ORG_INSTANCE = 2
    ACCOUNT = 3  # of one account, on all instances


@light_value()
class Place:
    """Which tally. `start`: Unix second at which its minute begins; `owner`: a uid."""

    start: int
    whose: Whose
    owner: str
    instance: str


def places(start: int, *, org: str, account: str, instance: str) -> tuple[Place, ...]:
    """All tallies that one request counts in. `org`, `account`: uids."""
    return (
        Place(start, Whose.INSTANCE, "", instance),
        Place(start, Whose.ORG, org, ""),
        Place(start, Whose.ORG_INSTANCE, org, instance),
        Place(start, Whose.ACCOUNT, account, ""),
    )


@light_value()
class Answered:
    """What one answer said. Tokens by scope kind; `curve`: prefill speed, None if not measured.

    `fetched`: tokens from each medium but memory; None where the engine did not tell.
    `only_others`: tokens that an unscoped cache had more than this one, at most.
    """

    input: Mapping[ScopeKind, int]
    cached: Mapping[ScopeKind, int]
    fetched: Mapping[Medium, int] | None
    first_token_seconds: float | None
    only_others: int
    curve: PrefillCurve | None

    def tally(self) -> Tally:
        counts = [0] * len(COUNTS)
        self.add_to(counts)
        return Tally(tuple(counts))

    def add_to(self, counts: list[int]) -> None:
        """Add it to counts in the order of `COUNTS`; cheaper than a tally for each answer."""
        total, cached = sum(self.input.values()), sum(self.cached.values())
        shared = sum([self.cached.get(kind, 0) for kind in SHARED_KINDS])
        places, first, others = _PLACES, self.first_token_seconds, self.only_others
        counts[places["requests"]] += 1
        counts[places["input_tokens"]] += total
        if cached:
            saved = _ms(self.curve, 0, cached)
            counts[places["hits"]] += 1
            counts[places["cached_tokens"]] += cached
            counts[places["saved_ms"]] += saved
            counts[places["shared_tokens"]] += shared
            counts[places["shared_saved_ms"]] += saved * shared // cached
        if first is not None:
            counts[places["first_token_requests"]] += 1
            counts[places["first_token_ms"]] += round(1000 * first)
        if others:
            counts[places["isolation_tokens"]] += others
            counts[places["isolation_ms"]] += _ms(self.curve, cached, cached + others)
        for kind, count in self.input.items():
            counts[_INPUT[kind]] += count
        for kind, count in self.cached.items():
            counts[_CACHED[kind]] += count
        self._add_media_to(counts, cached)

    def _add_media_to(self, counts: list[int], cached: int) -> None:
        if self.fetched is None:
            counts[_FROM[Medium.UNTOLD]] += cached
            return
        left = cached
        for medium, tokens in self.fetched.items():
            counts[_FROM[medium]] += min(tokens, left)
            left -= min(tokens, left)
        counts[_FROM[Medium.MEMORY]] += left


def _ms(curve: PrefillCurve | None, start: int, end: int) -> int:
    return round(1000 * curve.seconds(start, end)) if curve is not None else 0
