"""Callers that probe: an entry in the audit log, and, by setting, no more sharing for a while.

`core.probing` decides. What is noticed here is this gateway's own and ends with it: several
gateways count apart, and a restart forgets who was narrowed.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace

from scopekv.core.policy import Level, RoleRules
from scopekv.core.probing import CALLERS_MAX, CallerId, ProbeKind, ProbeWatch
from scopekv.core.scopes import Principal
from scopekv.errors import ScopeKVError
from scopekv.gateway.access import Access
from scopekv.gateway.documents import DocumentIndex
from scopekv.gateway.metrics import Metrics
from scopekv.gateway.prompts import Caller, Prompt
from scopekv.gateway.settings import ProbeAction, ProbeSettings

_ALONE = RoleRules(Level.USER, Level.USER, Level.USER)
_NO_DOCUMENTS = DocumentIndex(())
log = logging.getLogger("scopekv.probes")


class Probes:
    """Watches the prompts of one gateway. Use `stop` at the end.

    A caller is an account; of a service account, one of its end users, whom the account names.
    """

    def __init__(
        self,
        access: Access,
        metrics: Metrics,
        settings: ProbeSettings,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._access, self._metrics, self._settings = access, metrics, settings
        self._monotonic = monotonic
        self._watch = ProbeWatch(settings.limits, secrets.token_bytes(32))
        self._narrowed: OrderedDict[CallerId, float] = OrderedDict()  # -> until
        self._tasks: set[asyncio.Task[None]] = set()

    def held(self, caller: Caller) -> Caller:
        """The caller as decisions may take it: one that probed shares with nobody else."""
        if not self._narrowed:
            return caller
        until = self._narrowed.get(caller.id)
        if until is None or self._monotonic() >= until:
            return caller
        return replace(caller, rules=_ALONE, documents=_NO_DOCUMENTS)

    def look(self, caller: Caller, prompt: Prompt) -> None:
        """Watch one prompt whose tokens are known here. Never raises, never waits."""
        if self._settings.action is ProbeAction.OFF or prompt.tokens is None:
            return
        ends = [segment.end for segment in prompt.segments if segment.end is not None]
        name, now = caller.id, self._monotonic()
        kind = self._watch.look(name, prompt.tokens.packed, ends, now)
        if kind is None:
            return
        if self._settings.action is ProbeAction.NARROW:
            self._narrowed[name] = now + self._settings.narrow_seconds
            self._narrowed.move_to_end(name)
            while len(self._narrowed) > CALLERS_MAX:
                self._narrowed.popitem(last=False)
        self._metrics.probed(kind.value)
        task = asyncio.create_task(self._tell(caller.principal, kind))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """Wait for what is on its way into the audit log."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _tell(self, principal: Principal, kind: ProbeKind) -> None:
        """Aside, so that the prober does not see by time that it was noticed."""
        outcome = "narrowed" if self._settings.action is ProbeAction.NARROW else "noticed"
        try:
            await self._access.audit(principal, "probe", "prompts", kind.value, outcome=outcome)
        except ScopeKVError as error:
            log.error("a probe alarm is not in the audit log: %s", error)
