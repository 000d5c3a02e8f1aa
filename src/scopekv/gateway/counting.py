"""`POST /v1/messages/count_tokens`: how many tokens a prompt has, before it is sent."""

from __future__ import annotations

import msgspec

from scopekv.gateway.access import Access
from scopekv.gateway.apis.messages import COUNT_TOKENS, MESSAGES_API
from scopekv.gateway.bodies import stripped
from scopekv.gateway.http.messages import Headers, Request
from scopekv.gateway.http.reply import Reply
from scopekv.gateway.metrics import Metrics
from scopekv.gateway.passing import ERROR_BYTES_MAX, pass_error
from scopekv.gateway.reading import Reader
from scopekv.gateway.routing import Router
from scopekv.gateway.settings import RoutingSettings
from scopekv.gateway.waiting import WaitingRoom

SECONDS_MAX = 60.0
PLACES = 8  # what counts large requests also reads every tenant's: few may stand before those
_JSON: Headers = [(b"content-type", b"application/json")]


class TokenCount:
    """Counts here; where only an engine can render the prompt, that one counts."""

    def __init__(
        self,
        access: Access,
        reader: Reader,
        router: Router,
        metrics: Metrics,
        routing: RoutingSettings,
    ) -> None:
        self._access, self._reader, self._router = access, reader, router
        self._metrics = metrics
        self.room = WaitingRoom(lambda: PLACES, routing, "what counts tokens")

    async def serve(self, request: Request, reply: Reply) -> None:
        """Answer one request; 429 where too many wait. Nothing is prefilled, nothing cached."""
        async with self.room.place(lambda: self._access.principal(request)):
            await self._serve(request, reply)

    async def _serve(self, request: Request, reply: Reply) -> None:
        job = await self._reader.job(request, 0.0, MESSAGES_API)
        instance = self._router.reader(job.body["model"], [])
        prompt = await self._reader.prompt(job, instance)
        if prompt.tokens is not None:
            self._metrics.answered(request.path, 200)
            reply.send(200, _JSON, msgspec.json.encode({"input_tokens": len(prompt.tokens)}))
            return
        asked = msgspec.json.encode(stripped(job.body, MESSAGES_API))
        headers = [*instance.headers(), *job.headers]
        answer = await instance.pool.request(
            "POST", COUNT_TOKENS, headers, asked, timeout_seconds=SECONDS_MAX, safe=True
        )
        async with answer:
            if answer.status != 200:
                await pass_error(answer, (), reply, self._metrics)
                return
            self._metrics.answered(request.path, 200)
            reply.send(200, _JSON, await answer.read(ERROR_BYTES_MAX))
