"""What an operator asks for, as text, and the plans it makes: one, or a sweep of many."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from scopekv.errors import Misuse
from scopekv.simulate.fleet.identity import Isolation
from scopekv.simulate.fleet.plan import AS_BUILT, FleetPlan, tokens_of
from scopekv.simulate.fleet.speeds import TIERS, read_speeds
from scopekv.simulate.fleet.synthetic import Synthetic
from scopekv.simulate.fleet.tenants import TenantSpec
from scopekv.simulate.fleet.workloads import Conversations, Workload, article, from_trace, synthetic
from scopekv.simulate.traces import Arrivals, Trace, TraceFormat, open_trace
from scopekv.simulate.traces.lines import Lines
from scopekv.simulate.traces.units import UNITS, unit_doubt

BLOCK_TOKENS = 512
_BLOCKS_MEAN = 128  # of a prompt: with more of them, blocks are counted in larger ones
_REQUESTS_FIRST = 1000
_TENANTS = ("orgs", "users", "public", "skew", "assign")
SWEEPABLE = (
    *("instances", "engine-memory", *TIERS, "policy", "route", "isolation", "model"),
    *("seed", "speed-up", *_TENANTS),
)
_RUNS_MAX = 200
Number = TypeVar("Number", int, float)


@dataclass(frozen=True, slots=True)
class Asked:
    """The words of one run. `tiers` and `tenants`: by name."""

    values: Mapping[str, str] = field(default_factory=dict)
    tiers: Mapping[str, str] = field(default_factory=dict)
    tenants: Mapping[str, str] = field(default_factory=dict)

    def but(self, key: str, value: str) -> Asked:
        """The same with one word changed."""
        if key in TIERS:
            return replace(self, tiers={**self.tiers, key: value})
        if key in _TENANTS:
            return replace(self, tenants={**self.tenants, key: value})
        return replace(self, values={**self.values, key: value})

    def plan(self) -> FleetPlan:
        """Raises Misuse or ConfigError that says which word is wrong and what may stand there."""
        get = self.values.get
        speeds = read_speeds(get("model", "a100-8b"))
        memory, token = get("engine-memory"), speeds.kv_bytes_per_token
        named = (*TIERS, *sorted(set(self.tiers) - set(TIERS)))
        sizes = {name: tokens_of(self.tiers.get(name, "0"), token) for name in named}
        tiers = {name: size for name, size in sizes.items() if size > 0}
        spec = ",".join(f"{name}={value}" for name, value in self.tenants.items())
        return FleetPlan(
            instances=_number(int, "instances", get("instances", "1")),
            engine_tokens=tokens_of(memory, token) if memory is not None else speeds.engine_tokens,
            tiers=tiers,
            policy=get("policy", AS_BUILT),
            route=get("route", "scopekv"),
            isolation=_isolation(get("isolation", Isolation.LAYERED)),
            tenants=TenantSpec.parse(spec),
            speeds=speeds,
            seed=_number(int, "seed", get("seed", "1")),
            speed_up=_number(float, "speed-up", get("speed-up", "1")),
            warm_up=_number(float, "warm-up", get("warm-up", "0")),
        )


def _number(kind: Callable[[str], Number], name: str, text: str) -> Number:
    try:
        return kind(text)
    except ValueError as error:
        raise Misuse(f"{name} {text[:40]!r} is no number") from error


def _isolation(text: str) -> Isolation:
    try:
        return Isolation(text)
    except ValueError as error:
        known = ", ".join(Isolation)
        raise Misuse(f"isolation {text[:40]!r} is none of {known}") from error


def pairs(texts: Iterable[str], what: str) -> dict[str, str]:
    """`a=1,b=2` and `c=3` as one mapping."""
    found: dict[str, str] = {}
    for part in filter(None, ",".join(texts).split(",")):
        name, equals, value = (each.strip() for each in part.partition("="))
        if not equals or not value:
            raise Misuse(f"{what} {part[:60]!r}: write NAME=VALUE, joined by commas")
        if name in found:
            raise Misuse(f"{what} {part[:60]!r}: {name[:40]!r} is given twice")
        found[name] = value
    return found


def plans(asked: Asked, sweeps: Sequence[str]) -> list[tuple[dict[str, str], FleetPlan]]:
    """Every combination of the swept values, with the plan of each; one plan without sweeps."""
    axes: list[list[tuple[str, str]]] = []
    for text in sweeps:
        key, equals, values = text.partition("=")
        if key not in SWEEPABLE or not equals or not values:
            known = ", ".join(SWEEPABLE)
            raise Misuse(f"sweep {text[:60]!r}: write KEY=A,B,C with a key of {known}")
        if any(axis[0][0] == key for axis in axes):
            raise Misuse(f"sweep {text[:60]!r}: {key} is swept twice; write all values in one")
        axes.append([(key, value.strip()) for value in values.split(",")])
    combined = list(itertools.product(*axes))
    if len(combined) > _RUNS_MAX:
        raise Misuse(f"the sweeps make {len(combined)} runs; the limit is {_RUNS_MAX}")
    found = []
    for changes in combined:
        one = asked
        for key, value in changes:
            one = one.but(key, value)
        found.append((dict(changes), one.plan()))
    return found


def check_senders(
    workload: Workload, asked: Asked, runs: Sequence[tuple[Mapping[str, str], FleetPlan]]
) -> None:
    """Raises Misuse where senders are described for a workload that has its own."""
    given = set(asked.tenants).union(*(changes for changes, _ in runs))
    if workload.known_tenants and given & (set(_TENANTS) - {"public"}):
        raise Misuse(f"{workload.name} says who sends: of the tenants only public= can be given")


def workload_of(
    text: str,
    *,
    limit: int | None,
    block_tokens: int | None,
    arrivals: Mapping[str, str],
    timestamps: str | None = None,
) -> Workload:
    """A trace file, or `article`, `routing`, `synthetic`, each with `:name=number,...` after it.

    Where prompts have very many blocks, they are counted in larger ones, up to `BLOCK_TOKENS`,
    unless `block_tokens` says otherwise. Coding conversations share their tool definitions where
    they have equally many tokens of them (`traces.weka`). `timestamps`: a unit of UNITS; None: as
    the format says, with a doubt where the trace seems to have another.
    """
    begins = _arrivals(arrivals)
    name, _, rest = text.partition(":")
    if name in ("article", "routing", "synthetic") and not Path(text).exists():
        if block_tokens is not None or arrivals or timestamps is not None:
            raise Misuse(f"{name} is no file: block tokens, arrivals, timestamps are of its own")
        numbers = _numbers(pairs([rest], name))
        return _made(name, numbers, limit)
    trace = open_trace(Path(text), arrivals=begins, share_tools=True)
    if arrivals and trace.format is not TraceFormat.WEKA:
        raise Misuse(f"the trace {text[:200]} has its own arrivals: leave --arrivals out")
    if timestamps is not None:
        if trace.format is not TraceFormat.HASH_IDS:
            raise Misuse(f"the trace {text[:200]} has one unit of time: leave --timestamps out")
        trace = replace(trace, layout=replace(trace.layout, per_second=UNITS[timestamps]))
    found = from_trace(replace(trace, block_tokens=block_tokens or _wide(trace)), limit)
    if timestamps is None and trace.format is TraceFormat.HASH_IDS:
        return replace(found, doubt=unit_doubt(Lines(trace.path), trace.layout.per_second))
    return found


def _wide(trace: Trace) -> int | None:
    """The tokens of a block to count in, by the first requests; None: the trace's own."""
    blocks = requests = own = 0
    chained = replace(trace, layout=replace(trace.layout, chain=True))  # whatever ids name
    for request in itertools.islice(chained, _REQUESTS_FIRST):
        blocks, requests, own = blocks + len(request.block_ids), requests + 1, request.block_tokens
    wide = own
    while blocks * own > _BLOCKS_MEAN * requests * wide and wide * 2 <= BLOCK_TOKENS:
        wide *= 2
    return wide if wide > own else None


def _made(name: str, numbers: dict[str, int | float], limit: int | None) -> Workload:
    try:
        if name != "synthetic" and limit is not None:
            raise Misuse(f"{name} has the requests that its numbers say: leave --limit out")
        if name == "article":
            return article(**numbers)  # type: ignore[arg-type]
        if name == "routing":
            return Conversations(**numbers).workload()  # type: ignore[arg-type]
        if limit is not None:
            numbers["requests"] = limit
        return synthetic(Synthetic(**numbers))  # type: ignore[arg-type]
    except TypeError as error:
        if "float" in str(error):
            raise Misuse(f"workload {name!r}: its counts are whole numbers") from error
        raise Misuse(f"workload {name!r}: {str(error).rpartition(') ')[2]}") from error


def _numbers(found: Mapping[str, str]) -> dict[str, int | float]:
    numbers: dict[str, int | float] = {}
    for name, value in found.items():
        whole = not {".", "e"} & set(value)
        numbers[name] = _number(int, name, value) if whole else _number(float, name, value)
    return numbers


def _arrivals(found: Mapping[str, str]) -> Arrivals:
    if set(found) - {"users", "rate"}:
        raise Misuse("arrivals are users=N, conversations one after another, or rate=PER_SECOND")
    rate = found.get("rate")
    return Arrivals(
        users=_number(int, "users", found.get("users", "32")),
        rate_per_second=_number(float, "rate", rate) if rate else None,
    )
