"""Requests for a provider's model: read as any, marked, sent with the organisation's credential."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

import msgspec

from scopekv.errors import Misuse, Unavailable
from scopekv.gateway.access import Access
from scopekv.gateway.apis import APIS
from scopekv.gateway.apis.messages import COUNT_TOKENS, MESSAGES_API
from scopekv.gateway.http.client import Busy, ClientPool, NotSent
from scopekv.gateway.http.limits import ClientLimits
from scopekv.gateway.http.messages import Request
from scopekv.gateway.http.reply import Reply
from scopekv.gateway.metrics import Metrics
from scopekv.gateway.reading import Job, Reader
from scopekv.gateway.settings import RoutingSettings
from scopekv.gateway.tracing import operation, tell_upstream, tell_usage
from scopekv.gateway.upstreams.passing import pass_answer, refuse
from scopekv.gateway.upstreams.sending import PATHS, plan, sent_body, sent_headers
from scopekv.gateway.upstreams.settings import Credential, UpstreamSettings
from scopekv.gateway.waiting import NoPlace, WaitingRoom
from scopekv.ports.tracing import Trace, Tracer

HEAD_SECONDS_MAX = 600.0
IDLE_SECONDS = 30.0
TRIES_MAX = 16
Serve = Callable[[Request, Reply], Awaitable[None]]
_COUNTING = replace(MESSAGES_API, path=COUNT_TOKENS)
log = logging.getLogger("scopekv.upstreams")


class _Named(msgspec.Struct):
    """A body's model. Reading it alone makes nothing of the rest."""

    model: str = ""


_model = msgspec.json.Decoder(_Named)


@dataclass(frozen=True, slots=True, repr=False)
class _Upstream:
    """`room`: its own, so that one that is slow keeps nobody from another."""

    settings: UpstreamSettings
    pool: ClientPool
    room: WaitingRoom


class Upstreams:
    """Every provider of one gateway. `secret`: 32 bytes, makes markers. Use; then `close`."""

    def __init__(
        self,
        settings: Sequence[UpstreamSettings],
        routing: RoutingSettings,
        access: Access,
        reader: Reader,
        secret: bytes,
        metrics: Metrics,
        tracer: Tracer,
    ) -> None:
        self._access, self._reader, self._secret = access, reader, secret
        self._metrics, self._tracer = metrics, tracer
        limits = ClientLimits(idle_seconds=IDLE_SECONDS)
        self._all = [
            _Upstream(
                one,
                ClientPool(one.base_url, limits=limits),
                WaitingRoom(lambda: routing.in_flight_max, routing, "the provider"),
            )
            for one in settings
        ]
        self._by_model: dict[str, list[_Upstream]] = {}
        for one in self._all:
            for model in one.settings.models:
                self._by_model.setdefault(model, []).append(one)

    def models(self, org: str) -> list[str]:
        """The models that the organisation has a credential for."""
        return [
            model
            for model, having in self._by_model.items()
            if any(one.settings.credential(org) for one in having)
        ]

    def rooms(self) -> dict[str, WaitingRoom]:
        """Who waits, by the provider's name."""
        return {one.settings.name: one.room for one in self._all}

    def before(self, engines: Serve) -> Serve:
        """A route for providers' models; `engines` takes all others, and all where none is set."""
        if not self._all:
            return engines

        async def serve(request: Request, reply: Reply) -> None:
            having = self._by_model.get(_named(request.body))
            if having:
                principal = await self._access.principal(request)
                having = [one for one in having if one.settings.credential(principal.org)]
            # An organisation without a credential hears what it hears of a model that is none.
            if having:
                await self._serve(request, reply, having)
            else:
                await engines(request, reply)

        return serve

    async def close(self) -> None:
        for one in self._all:
            await one.pool.close()

    async def _serve(self, request: Request, reply: Reply, having: Sequence[_Upstream]) -> None:
        trace = self._tracer.begin(operation(request.path), request.headers)
        try:
            await self._tried(request, reply, having, trace)
        except BaseException as error:  # a client that left ends it too
            trace.failed(type(error).__name__)
            raise
        finally:
            trace.end()

    async def _tried(
        self, request: Request, reply: Reply, having: Sequence[_Upstream], trace: Trace
    ) -> None:
        """Send it to the first provider that has a place and is reached.

        One call, and another only where nothing was sent. One with a place now goes before one
        that must be waited for; who waits in several lines waits no longer in all than in one.
        """
        came, waited = time.perf_counter(), 0.0
        failures: list[NoPlace | NotSent] = []
        for upstream in sorted(having, key=lambda one: not one.room.free):
            place = upstream.room.place(lambda: self._access.principal(request), waited)
            try:
                async with place as waited:
                    await self._sent(request, reply, upstream, waited, trace)
                return
            except NoPlace as error:
                failures.append(error)
            except NotSent as error:
                failures.append(error)
                self._metrics.engine_error("not_sent")
                if not isinstance(error, Busy):
                    log.warning("upstream %s: %s", upstream.settings.name, error)
            waited = time.perf_counter() - came
        raise min(failures, key=_hopeful)

    async def _sent(
        self, request: Request, reply: Reply, upstream: _Upstream, waited: float, trace: Trace
    ) -> None:
        """Send it to this one and pass on the answer. Each try decides anew (I14)."""
        began = time.perf_counter()
        api = _COUNTING if request.path == COUNT_TOKENS else APIS[request.path]
        for _ in range(TRIES_MAX):
            job = await self._reader.job(request, began, api, waited_seconds=waited, trace=trace)
            credential = upstream.settings.credential(job.caller.principal.org)
            if credential is None:
                raise Unavailable("the organisation's credential went")
            body = await self._body(job, upstream.settings)
            if body is not None:
                tell_upstream(job, upstream.settings.name, upstream.settings.kind.value)
                await self._forward(job, upstream, credential, body, reply)
                return
        raise Unavailable("permissions did not come to rest")

    async def _body(self, job: Job, upstream: UpstreamSettings) -> bytes | None:
        """What to send; None where the registry changed since the job was read."""
        paths = PATHS[upstream.kind]
        if job.api.path not in paths:
            raise Misuse(f"this model is asked at {' or '.join(paths)}")
        made = await asyncio.to_thread(plan, job) if job.large else plan(job)
        epochs = {scope: await self._access.epoch(scope) for scope in made.scopes}
        if job.large:
            body = await asyncio.to_thread(sent_body, job, made, upstream, epochs, self._secret)
        else:
            body = sent_body(job, made, upstream, epochs, self._secret)
        stands = await self._access.stands(job.caller.versions, waited=job.large)
        return body if stands else None

    async def _forward(
        self, job: Job, upstream: _Upstream, credential: Credential, body: bytes, reply: Reply
    ) -> None:
        answer = await upstream.pool.request(
            "POST",
            job.api.path,
            sent_headers(job, upstream.settings, credential),
            body,
            timeout_seconds=HEAD_SECONDS_MAX,
        )
        async with answer:
            if answer.status != 200:
                job.trace.failed(str(answer.status))
                if answer.status in (401, 403):
                    log.error("upstream %s refused a credential", upstream.settings.name)
                secrets = (credential.api_key.encode("ascii"), b"[s:")
                await refuse(answer, job, secrets, reply, self._metrics)
                return
            name = upstream.settings.name
            usage = await pass_answer(answer, job, name, reply, self._metrics)
        tell_usage(job, usage)


def _hopeful(failure: NoPlace | NotSent) -> float:
    """The failure that is told is the least: what soonest has a place, else the first lost."""
    return failure.retry_after_seconds if isinstance(failure, NoPlace) else math.inf


def _named(body: bytes) -> str:
    try:
        return _model.decode(body).model
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""  # whoever reads it whole says what is wrong
