"""What a gateway says of itself: `/v1/models`, `/healthz`, `/readyz`, `/metrics`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import msgspec

from scopekv.errors import Misuse, ScopeDenied, Unavailable, UnknownModel
from scopekv.gateway.access import Access
from scopekv.gateway.fleet import Fleet
from scopekv.gateway.http.messages import Request
from scopekv.gateway.http.reply import Reply
from scopekv.gateway.instances_http import state_of
from scopekv.gateway.metrics import InstanceNow, Metrics
from scopekv.gateway.upstreams.relay import Upstreams
from scopekv.gateway.waiting import WaitingRoom
from scopekv.gateway.warm import Warmer

OPERATOR = "operator"
MODELS = "/v1/models"
ENGINES = ("engines", "")


class Standing:
    """The routes. None changes anything. `rooms`: as `Metrics.now` tells who waits."""

    def __init__(
        self,
        access: Access,
        fleet: Fleet,
        warmer: Warmer,
        rooms: Mapping[tuple[str, str], WaitingRoom],
        upstreams: Upstreams,
        metrics: Metrics,
    ) -> None:
        self._access, self._fleet, self._warmer = access, fleet, warmer
        self._rooms, self._upstreams, self._metrics = rooms, upstreams, metrics
        self._since = int(time.time())

    async def models(self, request: Request, reply: Reply) -> None:
        """Those of the engines, and those that the caller's organisation may ask providers for."""
        names = await self._names(request)
        send(reply, 200, {"object": "list", "data": [self._card(name) for name in names]})

    async def model(self, request: Request, reply: Reply) -> None:
        """One of them; clients ask for it by its name."""
        names = await self._names(request)
        if request.method != "GET":
            raise Misuse("a model takes GET")
        name = unquote(request.path.removeprefix(f"{MODELS}/"))
        if name not in names:
            known = ", ".join(names)
            raise UnknownModel(f"the model {name[:120]!r} does not exist here; there is: {known}")
        send(reply, 200, self._card(name))

    async def _names(self, request: Request) -> list[str]:
        principal = await self._access.principal(request)
        names = [*self._fleet.models(), *self._upstreams.models(principal.org)]
        return list(dict.fromkeys(names))

    def _card(self, name: str) -> dict[str, Any]:
        """As OpenAI's, with the context's length where an engine told it, as vLLM's."""
        having = [i for i in self._fleet.instances if i.max_model_len and name in i.models]
        card: dict[str, Any] = {"id": name, "object": "model", "created": self._since}
        card["owned_by"] = "scopekv"
        if having:
            card["max_model_len"] = min(i.max_model_len for i in having)
        return card

    async def healthz(self, _request: Request, reply: Reply) -> None:
        send(reply, 200, {"status": "ok"})

    async def readyz(self, _request: Request, reply: Reply) -> None:
        """Ready when an engine is up. Says how each engine keeps callers apart."""
        rows = [
            {
                "name": i.address.name,
                "state": state_of(i),
                "isolation": i.isolation.value,
                "reason": i.reason if i.up else "does not answer; the log says more",
                "models": list(i.models),
                **self._warmer.progress(i),
            }
            for i in self._fleet.instances
        ]
        ready = any(i.takes_requests for i in self._fleet.instances)
        status = "ready" if ready else "no engine is ready"
        try:
            await self._access.refresh()
        except Unavailable:
            ready, status = False, "the registry is out of reach: requests are refused"
        send(reply, 200 if ready else 503, {"status": status, "instances": rows})

    async def metrics(self, request: Request, reply: Reply) -> None:
        """Totals over all callers, so for the operator alone (L10)."""
        principal = await self._access.principal(request)
        if OPERATOR not in principal.roles:
            raise ScopeDenied("metrics are for the operator role")
        now = asyncio.get_running_loop().time()
        rows = [
            InstanceNow(
                *(i.address.name, state_of(i), i.isolation.value, i.in_flight),
                queue_seconds=i.load.queue_seconds(now),
            )
            for i in self._fleet.instances
        ]
        waiting = {place: room.waiting for place, room in self._rooms.items()}
        running = self._rooms[ENGINES].taken
        self._metrics.now(waiting=waiting, running=running, instances=rows)
        headers = [(b"content-type", b"text/plain; version=0.0.4; charset=utf-8")]
        reply.send(200, headers, self._metrics.text())


def send(reply: Reply, status: int, body: dict[str, Any]) -> None:
    """A whole answer of JSON."""
    reply.send(status, [(b"content-type", b"application/json")], msgspec.json.encode(body))
