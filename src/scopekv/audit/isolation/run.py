"""The audit from its first request to its result."""

from __future__ import annotations

import asyncio
import platform
import time
from collections.abc import Callable, Sequence
from statistics import median

from scopekv import __version__
from scopekv.audit.endpoint import Endpoint
from scopekv.audit.isolation.asking import Asking
from scopekv.audit.isolation.batches import Walk, measure_beyond, served
from scopekv.audit.isolation.cells import Ledger
from scopekv.audit.isolation.engines import Engines
from scopekv.audit.isolation.gaps import gaps
from scopekv.audit.isolation.jobs import jobs, stranger_of
from scopekv.audit.isolation.leases import leases_check
from scopekv.audit.isolation.matrix import callers_of
from scopekv.audit.isolation.published import warm_check
from scopekv.audit.isolation.target import IsolationSettings, IsolationTarget, Place
from scopekv.audit.isolation.texts import Texts
from scopekv.audit.isolation.verdicts import control_check, counter_check
from scopekv.audit.results import AuditResult, Check, NotTested, Plain, Verdict

Step = Callable[[str, int, int], None]  # what is done now, steps done, steps in all


async def audit_isolation(
    target: IsolationTarget, settings: IsolationSettings, progress: Step
) -> AuditResult:
    """Attack `target` and say what was found. What is tried follows from the seed alone.

    Raises `Unavailable` where the deployment stops answering. Cancelled, it lets every tier be
    read from again and returns what it has seen, as not complete, or is cancelled if that is
    nothing; the principals are for whoever made them to remove.
    """
    started_at, began = int(time.time()), time.monotonic()
    texts = Texts(settings.seed, block_size=settings.block_size, blocks=settings.text_blocks)
    async with (
        Endpoint(target.url) as endpoint,
        Engines(
            target.engines,
            settle_seconds_max=settings.settle_seconds_max,
            gateway=endpoint,
            operator_key=target.operator_key,
        ) as engines,
    ):
        asking = Asking(target, settings, endpoint, engines, texts, dict(target.keys))
        found = await engines.places()
        places = [place for place in found if not settings.places or place in settings.places]
        places = places or [Place.ANY]
        walk = Walk(asking, Ledger())
        checks, complete = await _until_cancelled(walk, places, progress)
    left = gaps(target, settings, places, cached=checks[0].verdict is Verdict.HELD)
    if not complete:
        left = (
            NotTested(
                "what had not been tried yet", "it was ended before (Ctrl-C, or --budget-minutes)"
            ),
            *left,
        )
    return AuditResult(
        audit="isolation",
        target=target.url,
        seed=settings.seed,
        started_at=started_at,
        seconds=time.monotonic() - began,
        checks=tuple(checks),
        not_tested=left,
        figures=walk.ledger.figures() | {"requests": asking.requests, "ttft_ms": _times(asking)},
        settings=_settings(asking, places),
        versions={
            "scopekv": __version__,
            "python": platform.python_version(),
            "machine": platform.machine(),
            **target.versions,
        },
        complete=complete,
    )


async def _until_cancelled(
    walk: Walk, places: Sequence[Place], progress: Step
) -> tuple[list[Check], bool]:
    """The checks, and whether they are all."""
    control: list[Check] = []
    try:
        return await _attack(walk, places, progress, control), True
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or not walk.ledger.cells:
            raise
        task.uncancel()
        return [*control, *walk.ledger.checks(), counter_check(walk.counters)], False


async def _attack(
    walk: Walk, places: Sequence[Place], progress: Step, first: list[Check]
) -> list[Check]:
    """All checks. The first, which goes into `first` as soon as it is known, says whether anything
    is cached; if nothing is, there are no others."""
    asking, target = walk.asking, walk.asking.target
    callers = callers_of(target)
    progress("is anything cached at all?", 0, 1)
    asking.endpoints = await served(asking, callers[0])
    models = (target.model, *target.adapters)
    await measure_beyond(asking, models, (callers[0], stranger_of(callers)))
    control = await control_check(asking, callers[0])
    first.append(control)
    if control.verdict is not Verdict.HELD:
        return [control]
    todo = await jobs(walk, places, callers)
    for number, job in enumerate(todo):
        progress(job.what.replace("_", " "), number, len(todo))
        await job.run()
    progress("done", len(todo), len(todo))
    further = [await warm_check(asking, callers), await leases_check(asking, callers)]
    return [control, *walk.ledger.checks(), *further, counter_check(walk.counters)]


def _times(asking: Asking) -> dict[str, Plain]:
    """Median times to the first token, by what the request turned out to be."""
    return {
        name: {"n": len(times), "median": round(1000 * median(times), 3)}
        for name, times in sorted(asking.times.items())
    }


def _settings(asking: Asking, places: Sequence[Place]) -> dict[str, Plain]:
    settings = asking.settings
    return {
        "tiers": [place.value for place in places],
        "endpoints": list(asking.endpoints),
        "quick": settings.quick,
        "block_size": settings.block_size,
        "text_blocks": settings.text_blocks,
        "rounds_max": settings.rounds_max,
    }
