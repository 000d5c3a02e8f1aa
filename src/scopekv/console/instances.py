"""Instances, their queues and their tiers: for the operator, since they carry everybody's load."""

from __future__ import annotations

import asyncio
from typing import Any

from scopekv.console.parts import CONSOLE, Page, Parts, Redirect, Visit
from scopekv.errors import Misuse, ScopeKVError
from scopekv.gateway.http.messages import Request
from scopekv.gateway.instances import Instance, Isolation
from scopekv.gateway.instances_http import PATH

TIERS = "/v1/scopekv/tiers"
WAIT_SECONDS = 0.15  # for all instances together: a busy one answers between two of its steps
CALL_SECONDS = 10.0
_COUNTS = ("hits", "misses", "stored", "evicted", "expired", "purged", "corrupt", "errors")


class InstancePages:
    """Asks engines what their tiers hold, and shows what was told last where one is slow."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._told: dict[str, tuple[float, dict[str, Any]]] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}

    async def show(self, visit: Visit) -> Page:
        visit.only(visit.operator)
        fleet, room = self._parts.fleet, self._parts.room
        listing = Request("GET", PATH, "", [], b"")
        rows = await self._parts.instances.answer(listing, visit.principal)
        await self._ask([one for one in fleet.instances if one.isolation is Isolation.SCOPED])
        found = [
            {**row, "reason": one.reason, "in_flight": one.in_flight, "tiers": self._tiers(one)}
            for row, one in zip(rows["data"], fleet.instances, strict=True)
        ]
        queue = {"waiting": room.waiting, "taken": room.taken, "places": room.places}
        return Page("instances.html.j2", {"instances": found, "queue": queue, "counts": _COUNTS})

    async def change(self, visit: Visit) -> Redirect:
        """Drain or resume one: an act of the administration's, in its log."""
        visit.only(visit.operator and visit.where[2] in ("drain", "resume"))
        path = visit.request.path.removeprefix(f"{CONSOLE}/instances")
        act = Request("POST", PATH + path, "", [], b"")
        await self._parts.instances.answer(act, visit.principal)
        return Redirect(f"{CONSOLE}/instances")

    def _tiers(self, instance: Instance) -> dict[str, Any] | None:
        """The tiers by name, and how old that is; None while nothing was told."""
        told = self._told.get(instance.address.name)
        if told is None or instance.isolation is not Isolation.SCOPED:
            return None
        at, answer = told
        tiers = answer.get("tiers")
        if not isinstance(tiers, dict):
            return None
        return {"age": self._parts.clock() - at, "tiers": tiers, "pending": answer.get("pending")}

    async def _ask(self, instances: list[Instance]) -> None:
        for instance in instances:
            name = instance.address.name
            if name not in self._asking:
                task = asyncio.create_task(self._ask_one(instance))
                self._asking[name] = task
        if self._asking:
            await asyncio.wait(list(self._asking.values()), timeout=WAIT_SECONDS)

    async def _ask_one(self, instance: Instance) -> None:
        name = instance.address.name
        try:
            answer = await instance.ask("GET", TIERS, seconds=CALL_SECONDS)
        except Misuse:  # an engine without tiers has no such page
            self._told.pop(name, None)
        except ScopeKVError:
            return  # what was told last, and its age, stay
        else:
            if isinstance(answer, dict):
                self._told[name] = (self._parts.clock(), answer)
        finally:
            del self._asking[name]
