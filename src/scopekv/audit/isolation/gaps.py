"""What this audit did not test, so that nobody takes it for tested."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from scopekv.audit.isolation.matrix import GROUP
from scopekv.audit.isolation.target import IsolationSettings, IsolationTarget, Place
from scopekv.audit.results import NotTested

_TIERS = (Place.ENGINE, Place.HOST, Place.DIRECTORY, Place.VALKEY, Place.S3)


def gaps(
    target: IsolationTarget, settings: IsolationSettings, places: Sequence[Place], *, cached: bool
) -> tuple[NotTested, ...]:
    """`cached`: whether anything is cached at all; else nothing was tried."""
    if not cached:
        return (NotTested("every cell of the matrix", "the control failed: nobody hits anything"),)
    return (*_of_tiers(target, settings, places), *_of_means(target), *_always(settings))


def _of_tiers(
    target: IsolationTarget, settings: IsolationSettings, places: Sequence[Place]
) -> Iterator[NotTested]:
    for tier in _TIERS:
        if tier in places:
            continue
        if not target.engines:
            why = "no engine's URL and key were given, so no block can be left in one tier alone"
        elif settings.places and tier not in settings.places:
            why = "left out by --tiers"
        else:
            why = "not every engine has this tier"
        yield NotTested(f"the {tier} tier alone", why)
    if any(place.outer or place is Place.HOST for place in places):
        yield NotTested(
            "public documents in tiers behind engine memory",
            "they are pinned in engine memory, so no other tier is asked for them",
        )


def _of_means(target: IsolationTarget) -> Iterator[NotTested]:
    if target.registrar is None:
        why = "no registry was given, so the audit can publish, remove and revoke nothing"
        yield NotTested("documents of every audience", why)
        yield NotTested("changes of membership, documents, accounts and sessions", why)
    elif not any(GROUP in member.groups for member in target.members):
        yield NotTested("groups", "no account is in the audit's group")
    if len({member.org for member in target.members}) < 2:
        yield NotTested("another organisation", "all keys are of one organisation")
    if not target.narrows:
        why = "the endpoint is no ScopeKV gateway: it knows no end users and sessions"
        yield NotTested("end users and sessions", why)
    if target.forge is None or not target.engines:
        why = "needs an engine's URL and key, and the data directory with the deployment's keys"
        yield NotTested("forged, expired, altered and replayed tickets at the engine", why)
    if not target.adapters:
        yield NotTested("adapters", "the deployment serves one model and no adapter")
    if not any(engine.restart for engine in target.engines):
        why = "not `scopekv up`, but somebody else runs the engines"
        yield NotTested("a restart of the engine", why)


def _always(settings: IsolationSettings) -> Iterator[NotTested]:
    if settings.quick:
        what = "endpoints but chat completions, changes in tiers behind the first, restarts"
        yield NotTested(what, "left out by --quick")
    yield NotTested("time, order under load, first touch", "see `scopekv audit timing`")
    yield NotTested("bytes, names and events as a thief reads them", "see `scopekv audit store`")
