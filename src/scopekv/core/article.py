"""The worked example: what a request was measured to cost, and the figures made of it.

Users send requests that start with one public document and end with a private question. Within a
mode, requests fall into strata whose members differ in nothing that the cache can see:

    opening   the very first request, where it alone reads the document (one trust group)
    first     a user's first request
    later     every other request

Where time does not allow to measure all of a stratum, token counts are those of the measured
members times its size; `Figures.requests_measured` says how many they were.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from scopekv.errors import Misuse

NONE_MEASURED_MIN = 1  # a first request; the probe stands for the later ones
USERS_MEASURED_MIN = 2
WARM_FORMS = 3  # a public document is warmed in each form that requests may have
_GLUE_TOKENS = 64  # of a chat template, around a document
RESERVE = 1.15  # plans are made for this many times the measured seconds


class Mode(StrEnum):
    """The four ways to run the same requests."""

    NONE = "none"
    PER_USER_SALT = "per_user_salt"
    ONE_GROUP = "one_group"
    SCOPEKV = "scopekv"


@dataclass(frozen=True, slots=True)
class Shape:
    """How many users, requests each, and tokens of the document and of each question."""

    users: int
    requests: int
    document_tokens: int
    question_tokens: int

    @property
    def prompt_tokens(self) -> int:
        return self.document_tokens + self.question_tokens

    @property
    def count(self) -> int:
        """Requests in all."""
        return self.users * self.requests


@dataclass(frozen=True, slots=True)
class Reading:
    """One answered request. `request` counts from 0 for each user; 0 is the user's first."""

    user: int
    request: int
    input_tokens: int
    cached_tokens: int
    ttft_ms: float


@dataclass(frozen=True, slots=True)
class Warming:
    """Tokens prefilled before any user asked: for the form users send, and for all forms."""

    own_tokens: int = 0
    all_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Figures:
    """One mode's figures. Rates are 0 to 1; each has its own name, since they differ (L12).

    `token_hit_rate`: cached / input, the one warming of the document that users start from
    counted as input that was not cached - as in a trust group, whose first request reads it.
    `token_hit_rate_users`: the same over users' requests alone.
    `token_hit_rate_all_warming`: with the warming of every form a request may have.
    """

    token_hit_rate: float
    token_hit_rate_users: float
    token_hit_rate_all_warming: float
    prefilled_tokens: int
    cached_tokens: int
    input_tokens: int
    warmed_tokens: int
    first_ttft_ms_p50: float
    first_ttft_ms_p99: float
    later_ttft_ms_p50: float
    later_ttft_ms_p99: float
    private_hits_across_users: int
    probes: int
    requests: int
    requests_measured: int
    cached_tokens_spread: int


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that `share` (0 to 1] of the values do not exceed (nearest rank)."""
    if not values or not 0 < share <= 1:
        raise Misuse("a percentile takes at least one value and a share above 0, at most 1")
    return sorted(values)[math.ceil(share * len(values)) - 1]


def figures(
    mode: Mode,
    shape: Shape,
    readings: Sequence[Reading],
    probes: Sequence[int],
    warming: Warming | None = None,
) -> Figures:
    """Make a mode's figures of what was measured.

    `probes`: for each probe, how many of another user's private tokens it got from the cache.
    Raises `Misuse` where a stratum was not measured at all.
    """
    warmed = warming or Warming()
    strata = _strata(mode, shape, readings)
    cached = round(sum(size * _mean(found) for size, found in strata.values()))
    spread = max(max(found) - min(found) for _, found in strata.values())
    tokens = shape.count * shape.prompt_tokens
    first = [reading.ttft_ms for reading in readings if reading.request == 0]
    later = [reading.ttft_ms for reading in readings if reading.request > 0] or first
    return Figures(
        token_hit_rate=cached / (tokens + warmed.own_tokens),
        token_hit_rate_users=cached / tokens,
        token_hit_rate_all_warming=cached / (tokens + warmed.all_tokens),
        prefilled_tokens=tokens + warmed.own_tokens - cached,
        cached_tokens=cached,
        input_tokens=tokens,
        warmed_tokens=warmed.all_tokens,
        first_ttft_ms_p50=percentile(first, 0.5),
        first_ttft_ms_p99=percentile(first, 0.99),
        later_ttft_ms_p50=percentile(later, 0.5),
        later_ttft_ms_p99=percentile(later, 0.99),
        private_hits_across_users=sum(probes),
        probes=len(probes),
        requests=shape.count,
        requests_measured=len(readings),
        cached_tokens_spread=spread,
    )


def private_hit(shape: Shape, block_size: int, cached_tokens: int) -> int:
    """How many cached tokens lie beyond the whole blocks of the document."""
    whole = shape.document_tokens // block_size * block_size
    return max(0, cached_tokens - whole)


def cache_tokens(shape: Shape) -> tuple[int, int]:
    """Tokens that the caches of the stock and of the scoped engine must hold, with a tenth spare.

    Within a mode nothing is evicted. Blocks of a finished mode may be: salts keep later modes from
    using them anyway. Pinned documents may take half of the scoped engine's cache.
    """
    own = shape.document_tokens + shape.requests * shape.question_tokens
    group = shape.document_tokens + shape.count * shape.question_tokens
    stock = max(shape.users * own, group) + 2 * shape.prompt_tokens
    forms = WARM_FORMS * (shape.document_tokens + _GLUE_TOKENS)
    scoped = max(2 * forms, forms + group + 2 * shape.question_tokens)
    return stock + stock // 10, scoped + scoped // 10


@dataclass(frozen=True, slots=True)
class Costs:
    """Measured seconds: of a whole prompt, of one whose document is cached, of an engine start."""

    whole_seconds: float
    later_seconds: float
    start_seconds: float
    warm_forms: int = WARM_FORMS
    probes: int = 2


@dataclass(frozen=True, slots=True)
class Plan:
    """How much of each mode to measure.

    `later`: requests of each user after its first, in every mode but `none`.
    `users`: users measured under per-user salts. `none`: first requests measured without a cache.
    """

    later: int
    users: int
    none: int

    def seconds(self, shape: Shape, costs: Costs) -> float:
        """What is still to come after the first user under per-user salts, roughly."""
        whole = (self.users - 1) + 1 + self.none + 1 + costs.warm_forms
        later = self.later * (self.users + 2 * shape.users) + 2 * shape.users + 3 * costs.probes
        return costs.start_seconds + whole * costs.whole_seconds + later * costs.later_seconds


def whole_plan(shape: Shape) -> Plan:
    """Measure every request, but of `none` a sample: its token counts hold by definition."""
    return Plan(shape.requests - 1, shape.users, shape.users)


def plan_within(shape: Shape, costs: Costs, seconds: float) -> Plan:
    """The most that fits: first later requests of all users, then users, then `none`.

    The smallest plan is given even where it does not fit.
    """

    def fits(plan: Plan) -> bool:
        return plan.seconds(shape, costs) * RESERVE <= seconds

    full = whole_plan(shape)
    none = min(NONE_MEASURED_MIN, full.none)
    users = min(USERS_MEASURED_MIN, full.users)
    plan = Plan(min(1, full.later), users, none)
    for later in range(plan.later, full.later + 1):
        plan = _better(plan, Plan(later, users, none), fits(Plan(later, users, none)))
    for more in range(users, full.users + 1):
        plan = _better(plan, Plan(plan.later, more, none), fits(Plan(plan.later, more, none)))
    for sample in range(none, full.none + 1):
        candidate = Plan(plan.later, plan.users, sample)
        plan = _better(plan, candidate, fits(candidate))
    return plan


def _better(held: Plan, candidate: Plan, fits: bool) -> Plan:
    return candidate if fits else held


def _mean(values: Sequence[int]) -> float:
    return sum(values) / len(values)


def _strata(
    mode: Mode, shape: Shape, readings: Sequence[Reading]
) -> Mapping[str, tuple[int, list[int]]]:
    """Size of each stratum that has members, and the cached tokens of those measured."""
    opens = mode is Mode.ONE_GROUP
    sizes = {
        "opening": 1 if opens else 0,
        "first": shape.users - opens,
        "later": shape.users * (shape.requests - 1),
    }
    found: dict[str, list[int]] = {name: [] for name in sizes}
    for reading in readings:
        if reading.request > 0:
            found["later"].append(reading.cached_tokens)
        else:
            opening = opens and reading.user == 0
            found["opening" if opening else "first"].append(reading.cached_tokens)
    for name, size in sizes.items():
        if size and not found[name]:
            raise Misuse(f"no {name} request of mode {mode} was measured")
    return {name: (size, found[name]) for name, size in sizes.items() if size}
