"""`/admin/v1/instances`: the instances of this gateway, for its operator.

    GET  /admin/v1/instances                   {"data": [{"name": ..., "state": ...}]}
    POST /admin/v1/instances/NAME/drain        what is under way ends, nothing new comes
    POST /admin/v1/instances/NAME/resume
    POST /admin/v1/instances/NAME/restart      only where the gateway's own process runs the engine

Draining is this gateway's alone and ends with it: the others are told one by one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import unquote

from scopekv.core.administration import AdminReason
from scopekv.core.scopes import Principal
from scopekv.errors import Misuse, NotFound, ScopeDenied
from scopekv.gateway.fleet import Fleet
from scopekv.gateway.http.messages import Request
from scopekv.gateway.instances import Instance
from scopekv.ports import Registry

PATH = "/admin/v1/instances"
OPERATOR = "operator"
ACTS = ("drain", "resume", "restart")
Restart = Callable[[str], Awaitable[None]]  # ends an instance, which then starts anew


class InstancesAdmin:
    """Lists, drains, resumes and restarts instances. Only for principals with the role operator.

    `restart`: None where somebody else runs the engines.
    """

    def __init__(self, registry: Registry, fleet: Fleet, restart: Restart | None) -> None:
        self._registry, self._fleet, self._restart = registry, fleet, restart

    @staticmethod
    def takes(path: str) -> bool:
        return path == PATH or path.startswith(PATH + "/")

    async def answer(self, request: Request, principal: Principal) -> dict[str, Any]:
        """Raises `ScopeDenied`, `NotFound`, `Misuse`. An act is in the audit log, denied or not."""
        parts = [unquote(part) for part in request.path[len(PATH) :].strip("/").split("/") if part]
        allowed = OPERATOR in principal.roles
        if not parts and request.method == "GET":
            if not allowed:
                raise ScopeDenied("instances are for the operator role")
            rows = [_row(instance) for instance in self._fleet.instances]
            return {"data": rows, "restartable": self._restart is not None}
        if len(parts) != 2 or parts[1] not in ACTS:
            raise NotFound(f"there is no {request.path[:120]!r}; NAME takes {', '.join(ACTS)}")
        if request.method != "POST":
            raise Misuse(f"{request.path[:120]!r} takes POST")
        await self._audit(principal, parts[1], parts[0][:120], allowed=allowed)
        if not allowed:
            raise ScopeDenied("instances are for the operator role")
        instance = self._fleet.named(parts[0])
        if parts[1] == "restart":
            await self._start_anew(instance)
        else:
            instance.draining = parts[1] == "drain"
        return _row(instance)

    async def _start_anew(self, instance: Instance) -> None:
        """Returns once its process has ended: until it is ready again, it is `down`."""
        if self._restart is None:
            raise Misuse("this gateway did not start its engines: restart them where they run")
        await self._restart(instance.address.name)
        self._fleet.lost(instance, "it is being restarted")

    async def _audit(self, principal: Principal, act: str, name: str, *, allowed: bool) -> None:
        reason = AdminReason.OPERATOR if allowed else AdminReason.DENIED_OPERATOR_ONLY
        await asyncio.to_thread(
            lambda: self._registry.audit(
                actor=f"{principal.org}/{principal.name}",
                action=f"instance_{act}",
                resource=f"instance:{name}",
                outcome="allowed" if allowed else "denied",
                reason=reason.value,
            )
        )


def state_of(instance: Instance) -> str:
    """One word for what an instance is to the router."""
    if not instance.up:
        return "down"
    if instance.draining:
        return "draining" if instance.in_flight else "drained"
    return "resting" if instance.circuit.open else "in_use"


def _row(instance: Instance) -> dict[str, Any]:
    load = instance.load
    curve = load.curve()
    return {
        "name": instance.address.name,
        "state": state_of(instance),
        "isolation": instance.isolation.value,
        "models": list(instance.models),
        "waiting": load.waiting,
        "decoding": load.decoding,
        "of_other_gateways": load.in_flight_of_all - load.in_flight,
        "prefill_tokens_per_second": round(1000 / curve.seconds(0, 1000)) if load.samples else None,
    }
