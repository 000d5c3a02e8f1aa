"""`/admin/v1` as a gateway serves it: who asks, in turn, on worker threads.

Changes go one at a time over all gateways, and a denied one is written down too. So organisations
take turns: one that floods keeps no administrator of another from revoking (L6, L11).
"""

from __future__ import annotations

import asyncio

from scopekv.gateway.access import Access
from scopekv.gateway.admin_http import handle, revocation_of, settled
from scopekv.gateway.administration import Administration
from scopekv.gateway.http.messages import Request
from scopekv.gateway.http.reply import Reply
from scopekv.gateway.instances_http import InstancesAdmin
from scopekv.gateway.revocation import Revoker
from scopekv.gateway.settings import RoutingSettings
from scopekv.gateway.standing import send
from scopekv.gateway.waiting import WaitingRoom

PLACES = 4  # of the threads that all the gateway shares


class AdminServing:
    """The routes. `room`: for acts; who waits for the end of one that is done holds no place."""

    def __init__(
        self,
        access: Access,
        administration: Administration,
        instances: InstancesAdmin,
        revoker: Revoker,
        routing: RoutingSettings,
    ) -> None:
        self._access, self._administration = access, administration
        self._instances, self._revoker = instances, revoker
        self.room = WaitingRoom(lambda: PLACES, routing, "the administration")

    async def serve(self, request: Request, reply: Reply) -> None:
        """Answer one request; 429 where too many wait. Who calls is asked again after a wait."""
        async with self.room.place(lambda: self._access.principal(request)):
            principal = await self._access.principal(request)
            if self._instances.takes(request.path):
                send(reply, 200, await self._instances.answer(request, principal))
                return
            status, answer = await asyncio.to_thread(
                handle,
                self._administration,
                principal,
                request.method,
                request.path,
                request.query,
                request.body,
            )
        waits = revocation_of(status, answer, request.body)
        if waits is not None:
            await self._revoker.settled(*waits)
            status, answer = await asyncio.to_thread(
                settled, self._administration, principal, answer
            )
        send(reply, status, answer)
