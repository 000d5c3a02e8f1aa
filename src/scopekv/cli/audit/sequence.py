"""Audits one after another: whatever becomes of one, the others and the report are still made."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from scopekv.audit.results import AuditResult, Check, Severity, Verdict
from scopekv.errors import ScopeKVError

log = logging.getLogger("scopekv.audit")


@dataclass(frozen=True, slots=True)
class Planned:
    """`target`: for the report, if `body` comes to no result. `body` cleans up when cancelled."""

    audit: str
    target: str
    body: Callable[[], Awaitable[AuditResult]]


class Audits:
    """Runs each audit in turn, until `stop` is called or the time is up. Use once."""

    def __init__(self, planned: Sequence[Planned], *, seed: int, seconds_max: float) -> None:
        """`seconds_max`: for all together; `math.inf` for no limit."""
        self._planned = planned
        self._seed = seed
        self._ends_at = time.monotonic() + seconds_max
        self._stopped = self._ending = False
        self._task: asyncio.Future[AuditResult] | None = None

    def stop(self) -> None:
        """End the audit under way, which cleans up, and begin no other. A second call does not
        end the cleaning up."""
        self._stopped = True
        self._end()

    def _end(self) -> None:
        if self._task is not None and not self._ending:
            self._ending = True
            self._task.cancel()

    async def run(self) -> tuple[AuditResult, ...]:
        """A result for each that was planned; of one that came to none, why. Never raises."""
        return tuple([await self._one(planned) for planned in self._planned])

    async def _one(self, planned: Planned) -> AuditResult:
        started_at, began = int(time.time()), time.monotonic()
        left = self._ends_at - began
        if self._stopped or left <= 0:
            why = f"not begun: {self._reason()}"
        else:
            self._task = task = asyncio.ensure_future(planned.body())
            done, _ = await asyncio.wait({task}, timeout=None if math.isinf(left) else left)
            if not done:
                self._end()
                await asyncio.wait({task})
            found = None if task.cancelled() else task.exception()
            if not task.cancelled() and found is None:
                return task.result()
            why = f"cut short: {self._reason()}" if found is None else _said(found)
        return _without_result(planned, why, self._seed, started_at, time.monotonic() - began)

    def _reason(self) -> str:
        return "interrupted" if self._stopped else "the time for all audits was used up"


def _said(error: BaseException) -> str:
    if isinstance(error, ScopeKVError):
        return f"could not be carried out: {error}"
    log.error("a fault of the audit itself", exc_info=error)
    return f"a fault of the audit itself: {type(error).__name__}"


def _without_result(
    planned: Planned, why: str, seed: int, started_at: int, seconds: float
) -> AuditResult:
    check = Check(
        name=f"{planned.audit}.carried_out",
        title=f"The {planned.audit} audit comes to a result",
        verdict=Verdict.BLIND,
        summary=why,
        severity=Severity.LOW,
    )
    return AuditResult(
        audit=planned.audit,
        target=planned.target,
        seed=seed,
        started_at=started_at,
        seconds=seconds,
        checks=(check,),
        complete=False,
    )
