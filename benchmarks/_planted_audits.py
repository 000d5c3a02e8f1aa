"""The audits as `planted.py` runs them: fast profiles on fresh, simulated deployments."""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for tests.audit.planted

from scopekv.audit.endpoint import Endpoint
from scopekv.audit.isolation import (
    EngineAccess,
    IsolationSettings,
    IsolationTarget,
    Place,
    audit_isolation,
)
from scopekv.audit.results import AuditResult
from scopekv.audit.store import (
    Callers,
    MetricsPage,
    Secret,
    StoreSettings,
    StoreTarget,
    audit_store,
)
from scopekv.audit.timing.asking import Asker, Party
from scopekv.audit.timing.audit import TimingAudit
from scopekv.audit.timing.flooding import Flooding
from scopekv.audit.timing.plan import Parties, Sizes
from scopekv.audit.timing.prompts import Letters
from scopekv.cli.audit.registrar import forge_of, registered
from scopekv.core.scopes import Narrowing, Scope, private_scope
from scopekv.errors import ScopeKVError
from scopekv.simulate.model import SimulatedModel
from scopekv.simulate.object_store import SimulatedObjectStore
from scopekv.simulate.stage import ENGINE_KEY, Stage
from tests.audit.planted.world import Rooms, tiered

TIMING_TOKENS = 72  # two whole blocks of a near prompt
TOKEN_SECONDS = 0.0006  # a hit saves about 40 ms
FLOOD = 110
SMALL = Rooms(engine=130, host=1, outer=320)  # the watched prompts of both fit the first
FLOODING = "timing.flooding"
EXPERIMENTS = ("organisation", "global", "first_touch", "denied")  # of a clean run


@dataclass(frozen=True, slots=True)
class Run:
    """One audit of one deployment. `plugin`: whether its engine has it.

    `check`: the one that is looked for; what has nothing to do with it is left out. Empty: all.
    """

    folder: Path
    model: SimulatedModel
    seed: int
    plugin: bool = True
    check: str = ""


Audit = Callable[[Run], Awaitable[AuditResult]]


def quiet(_what: str, _done: int, _total: int) -> None:
    """Progress is told by run, not by step."""


async def isolation(run: Run) -> AuditResult:
    """Engine, host, a directory and a shared store, each alone; one endpoint (`--quick`)."""
    found: list[AuditResult] = []
    async with tiered(run.folder, run.model, plugin=run.plugin) as stage:
        world = stage.deployment.world
        with contextlib.suppress(ScopeKVError), registered(world.registry, "planted") as registrar:
            engine = EngineAccess("engine-0", stage.engine.url, ENGINE_KEY, _restart(stage))
            target = IsolationTarget(
                url=stage.deployment.url,
                model=run.model.name,
                members=registrar.members,
                keys=registrar.keys,
                engines=(engine,),
                registrar=registrar,
                forge=forge_of(world, registrar, "default"),
            )
            place = Place.HOST if run.check.startswith("isolation.host") else Place.ENGINE
            settings = IsolationSettings(
                seed=run.seed, quick=True, rounds_max=2, places=(place,) if run.check else ()
            )
            found.append(await audit_isolation(target, settings, quiet))
    return found[0]


def _restart(stage: Stage) -> Callable[[], Awaitable[None]]:
    async def restart() -> None:
        await stage.engine.restart()
        await stage.look()

    return restart


async def store(run: Run) -> AuditResult:
    """One directory, read and tampered with; a log at its most talkative, metrics, events."""
    log = run.folder / "gateway.log"
    with _logging(log):
        async with tiered(run.folder, run.model, outer=("directory",), events=True) as stage:
            account = stage.deployment.account
            keys = [account("acme", "alice"), account("globex", "bob")]
            operator = account("hq", "root", roles=["operator"])
            target = StoreTarget(
                (f"directory={run.folder}/tier",),
                Callers(stage.deployment.url, *keys),
                logs=(log,),
                metrics=(MetricsPage(f"{stage.deployment.url}/metrics", operator),),
                events=(str(stage.engine.events_endpoint),),
                names=("acme", "globex", "alice"),
                scopes=(_scope(stage),),
                secrets=(Secret("the scope secret", stage.deployment.world.scope_secret),),
                forget=lambda: _forget(stage),
                revoke=lambda: _revoke(stage, operator),
                corrupt=lambda: _corrupt(stage),
                tickets=lambda: _tickets(stage),
            )
            settings = StoreSettings(
                seed=run.seed,
                canary_tokens=140,
                still_seconds=0.15,
                tamper=not run.check or run.check.startswith("store.tamper"),
            )
            return await audit_store(target, settings, quiet)


@contextlib.contextmanager
def _logging(path: Path) -> Iterator[None]:
    handler, log = logging.FileHandler(path), logging.getLogger("scopekv")
    level, propagates = log.level, log.propagate
    log.addHandler(handler)
    log.setLevel(logging.DEBUG)
    log.propagate = False
    log.debug("the log of a planted fault's deployment")
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
        log.propagate = propagates
        handler.close()


def _scope(stage: Stage) -> Scope:
    """The first caller's own."""
    with stage.deployment.world.registry.read() as view:
        org = view.orgs.get("acme")
        account = view.accounts.get(org.uid, "alice") if org is not None else None
    assert account is not None
    return private_scope(account.principal, Narrowing())


async def _forget(stage: Stage) -> None:
    stage.engine.cache.clear()
    if stage.engine.tiers is not None:
        stage.engine.tiers.restart()


async def _revoke(stage: Stage, operator: str) -> None:
    await stage.client.send(
        "POST",
        "/admin/v1/revocations/users",
        {"org": "acme", "name": "alice", "wait_seconds": 20},
        key=operator,
    )


async def _corrupt(stage: Stage) -> int:
    tiers = stage.engine.tiers
    return sum(tier.counters()["corrupt"] for tier in tiers.tiers) if tiers is not None else 0


async def _tickets(stage: Stage) -> Sequence[str]:
    return [call.ticket for call in stage.engine.seen.calls if call.ticket]


async def timing(run: Run) -> AuditResult:
    """Few samples of each experiment; or a flood, which takes a deployment of its own."""
    if run.check == FLOODING:
        return await _flood(run)
    async with tiered(run.folder, run.model, outer=("directory",)) as stage:
        stage.engine.behaviour.token_seconds = TOKEN_SECONDS
        sizes = Sizes(
            samples=32,  # room for a stalled machine: a control takes 17 that do not overlap
            attack_samples=32,
            prompt_tokens=TIMING_TOKENS,
            only=(run.check.partition(".")[2],) if run.check else EXPERIMENTS,
        )
        async with Endpoint(stage.deployment.url) as endpoint:
            return await TimingAudit(endpoint, _parties(stage), sizes, run.seed, quiet).run()


async def _flood(run: Run) -> AuditResult:
    """Small memories before one slow store, so that what left them shows in time."""
    async with tiered(run.folder, run.model, outer=("s3",), rooms=SMALL) as stage:
        stage.engine.behaviour.token_seconds = TOKEN_SECONDS / 4
        assert stage.engine.tiers is not None
        slow = stage.engine.tiers.tiers[0]._parts.store
        assert isinstance(slow, SimulatedObjectStore)
        slow.conduct.latency_seconds = 0.015
        parties, began = _parties(stage), time.time()
        async with Endpoint(stage.deployment.url) as endpoint:
            letters = Letters(f"{run.seed}:{run.folder}", TIMING_TOKENS)
            asker = Asker(endpoint, run.model.name, True, letters)
            flooding = Flooding(asker, parties.victim, parties.attacker, FLOOD)
            check = await flooding.check(quiet)
    seconds = time.time() - began
    return AuditResult("timing", "", run.seed, int(began), seconds, (check,))


def _parties(stage: Stage) -> Parties:
    account = stage.deployment.account
    return Parties(
        Party("victim", account("acme", "alice")),
        (Party("attacker", account("globex", "bob")),),
        Party("neighbour", account("acme", "ann")),
        account("hq", "root", roles=["operator"]),
    )


AUDITS: dict[str, Audit] = {"isolation": isolation, "store": store, "timing": timing}
