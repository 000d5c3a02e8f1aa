"""Which audits a run makes, of what, and what it leaves out."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from scopekv.audit.endpoint import Endpoint
from scopekv.audit.isolation import IsolationTarget, audit_isolation
from scopekv.audit.isolation.engines import Engines
from scopekv.audit.isolation.target import Forge, Seat
from scopekv.audit.isolation.tickets import open_ticket
from scopekv.audit.results import AuditResult, NotTested
from scopekv.audit.store import StoreSettings, audit_store
from scopekv.audit.timing.asking import Party
from scopekv.audit.timing.audit import TimingAudit
from scopekv.audit.timing.plan import Parties, Sizes
from scopekv.cli.audit.isolation import settings_for
from scopekv.cli.audit.output import Step
from scopekv.cli.audit.sequence import Planned
from scopekv.cli.audit.store_target import Given, medium_of, target_of
from scopekv.cli.audit.targets import registered_target
from scopekv.cli.up import UP_FILE
from scopekv.core.scopes import Scope

AUDITS = ("isolation", "store", "timing")  # the longest last: a budget cuts it, not the others
QUICK = Sizes(samples=100, attack_samples=50, prompt_tokens=136)
_FOREIGN = "it takes an administrator of the deployment; two keys were given"


@dataclass(frozen=True, slots=True, repr=False)
class Choice:
    """What was asked for. `url` set: an endpoint of others, with both keys."""

    data_dir: Path
    seed: int
    audits: tuple[str, ...]
    config: Path | None
    registry: str | None
    stores: tuple[str, ...]
    logs: tuple[Path, ...]
    url: str | None
    victim_key: str | None
    attacker_key: str | None
    model: str
    equivalence: bool
    quick: bool


@dataclass(frozen=True, slots=True, repr=False)
class Plan:
    """`used`: keys that came into use; it grows while audits run."""

    planned: tuple[Planned, ...]
    not_tested: tuple[NotTested, ...]
    used: list[str] = field(default_factory=list)

    def secrets(self) -> tuple[str, ...]:
        return tuple(self.used)


def foreign_plan(choice: Choice, step: Step) -> Plan:
    """Timing alone, between two keys of an OpenAI-compatible endpoint."""
    url, victim, attacker = choice.url or "", choice.victim_key or "", choice.attacker_key or ""
    parties = Parties(victim=Party("victim", victim), attackers=(Party("attacker", attacker),))

    async def timing() -> AuditResult:
        return await _timing(choice, step, url, parties)

    planned = (Planned("timing", url, timing),)
    left = tuple(NotTested(f"The {name} audit", _FOREIGN) for name in AUDITS if name != "timing")
    return Plan(planned if "timing" in choice.audits else (), left, [victim, attacker])


def own_plan(choice: Choice, step: Step) -> Plan:
    """All audits of a deployment whose registry is here, each with principals of its own."""
    audits, left_out = _possible(choice)
    used: list[str] = []
    bodies: dict[str, Callable[[IsolationTarget], Awaitable[AuditResult]]] = {
        "isolation": lambda target: _isolation(choice, step, target),
        "store": lambda target: _store(choice, step, target),
        "timing": lambda target: _own_timing(choice, step, target),
    }

    def planned(place: int, name: str) -> Planned:
        async def body() -> AuditResult:
            async with registered_target(
                config=choice.config,
                registry=choice.registry,
                data_dir=choice.data_dir,
                url=None,
                model=choice.model or None,
                run=f"{choice.seed:08x}-{place}",
            ) as target:
                used.extend(target.keys.values())
                return await bodies[name](target)

        where = choice.config.name if choice.config is not None else "the running `scopekv up`"
        return Planned(name, where, body)

    made = tuple(planned(place, name) for place, name in enumerate(audits))
    return Plan(made, left_out, used)


async def _isolation(choice: Choice, step: Step, target: IsolationTarget) -> AuditResult:
    settings = await settings_for(target, choice.seed, (), quick=choice.quick)
    return await audit_isolation(target, settings, _named("isolation", step))


async def _store(choice: Choice, step: Step, target: IsolationTarget) -> AuditResult:
    """As a thief of the stores, who also changes objects of the audit's own prompts."""
    victim, other = _seats(target)[0], _seats(target)[2]
    running = choice.data_dir / UP_FILE
    given = Given(
        config=choice.config or (running if running.is_file() else None),
        data_dir=choice.data_dir,
        registry=choice.registry,
        stores=choice.stores,
        logs=choice.logs or _own_logs(choice),
        metrics=(f"{target.url}/metrics",),
        events=(),
        names=(),
        gateway=target.url,
        key=target.keys[victim],
        other_key=target.keys[other],
        admin_key=target.operator_key,
        account="/".join(victim),
        model=target.model,
        engines=(),
        engine_key="",
    )
    found = await asyncio.to_thread(target_of, given, dict(os.environ))
    forge = target.forge
    if forge is not None:
        scopes = [await asyncio.to_thread(forge.user_scope, *seat) for seat in (victim, other)]
        found = replace(
            found,
            scopes=tuple(dict.fromkeys((*scopes, *found.scopes))),
            tickets=partial(_stolen, target, forge, scopes),
        )
    settings = StoreSettings(seed=choice.seed, tamper=True)
    result = await audit_store(found, settings, _named("store", step))
    unnamed = await _unnamed_tiers(target, found.stores)
    return replace(result, not_tested=(*unnamed, *result.not_tested))


async def _unnamed_tiers(target: IsolationTarget, stores: Sequence[str]) -> list[NotTested]:
    """Tiers that engines have and that no store is named for."""
    kinds = {medium_of(store) for store in stores}
    async with Engines(target.engines, settle_seconds_max=1.0) as engines:
        places = [place for place in await engines.places() if place.outer]
    why = "engines have it, and no --store names it"
    return [NotTested(f"the {place} tier", why) for place in places if place not in kinds]


def _own_logs(choice: Choice) -> tuple[Path, ...]:
    """Those of the engines that `scopekv up` runs."""
    folder = choice.data_dir / "logs"
    return (folder,) if choice.config is None and folder.is_dir() else ()


async def _stolen(
    target: IsolationTarget, forge: Forge, scopes: Sequence[Scope]
) -> tuple[str, ...]:
    """What engines are sent for these scopes, as whoever took over an engine has it."""
    async with Engines(target.engines, settle_seconds_max=1.0) as engines:
        prints = {bytes.fromhex(told["fingerprint"]) for told in await engines.statuses()}
    return tuple(
        open_ticket(forge, scope.id(forge.scope_secret), one, issued_ms=0, nonce=bytes(16))
        for scope in scopes
        for one in sorted(prints)
    )


def _seats(target: IsolationTarget) -> tuple[Seat, Seat, Seat]:
    """Two users of one organisation and one of another, as the registrar made them."""
    home, near, away = (
        next(one.seat for one in target.members if one.name == name)
        for name in ("alice", "ann", "bob")
    )
    return home, near, away


async def _own_timing(choice: Choice, step: Step, target: IsolationTarget) -> AuditResult:
    """A user against another of the organisation, against one of another organisation, and
    behind a public document."""
    home, near, away = _seats(target)
    parties = Parties(
        victim=Party("victim", target.keys[home]),
        attackers=(Party("attacker", target.keys[away]),),
        neighbour=Party("neighbour", target.keys[near]),
        admin_key=target.operator_key,
    )
    return await _timing(choice, step, target.url, parties)


async def _timing(choice: Choice, step: Step, url: str, parties: Parties) -> AuditResult:
    async with Endpoint(url) as endpoint:
        return await TimingAudit(
            endpoint=endpoint,
            parties=parties,
            sizes=QUICK if choice.quick else Sizes(equivalence=choice.equivalence),
            seed=choice.seed,
            step=_named("timing", step),
            model=choice.model,
        ).run()


def _possible(choice: Choice) -> tuple[tuple[str, ...], tuple[NotTested, ...]]:
    """The audits to make, and why others are not."""
    why = dict.fromkeys((name for name in AUDITS if name not in choice.audits), "left out (--only)")
    if "store" not in why and not choice.stores and not (choice.data_dir / "tiers").is_dir():
        why["store"] = "no store is named (--store), and the data directory holds none"
    made = tuple(name for name in AUDITS if name not in why)
    return made, tuple(NotTested(f"The {name} audit", reason) for name, reason in why.items())


def _named(audit: str, step: Step) -> Step:
    return lambda what, done, total: step(f"{audit}: {what}", done, total)
