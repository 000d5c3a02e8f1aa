"""One completion request, from the client's bytes to the engine's answer (design: steps 1 to 8)."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Sequence
from enum import Enum

from scopekv.core.values import light_value
from scopekv.errors import Unavailable
from scopekv.gateway.access import Access
from scopekv.gateway.bodies import engine_body, stripped
from scopekv.gateway.explaining.diagnostics import Told as Compared
from scopekv.gateway.explaining.diagnostics import comparison
from scopekv.gateway.explaining.recents import Recent, Recents
from scopekv.gateway.fleet import Fleet
from scopekv.gateway.http.client import Busy, NotSent
from scopekv.gateway.http.messages import Request
from scopekv.gateway.http.reply import Reply
from scopekv.gateway.instances import Instance, Isolation
from scopekv.gateway.metrics import Metrics
from scopekv.gateway.passing import Passing, Told, pass_error
from scopekv.gateway.permits import Issuer
from scopekv.gateway.probes import Probes
from scopekv.gateway.prompts import Prompt
from scopekv.gateway.reading import Job, Reader
from scopekv.gateway.recording import Recorder
from scopekv.gateway.request_log import RequestLog
from scopekv.gateway.routing import Asked, Route, Router, same_text
from scopekv.gateway.scope_notes import ScopeNotes
from scopekv.gateway.tracing import operation, tell_route, tell_usage
from scopekv.gateway.waiting import WaitingRoom
from scopekv.ports.tracing import Trace, Tracer

HEAD_SECONDS_MAX = 600.0
TRIES_MAX = 16


@light_value(repr=False)
class _Sending:
    """A body for an engine, and the secrets in it that no answer may repeat."""

    body: bytes
    secrets: tuple[bytes, ...]
    epochs: tuple[int, ...]
    own_epoch: int  # of the caller's private scope


class _Sent(Enum):
    """What became of a request on one instance."""

    ANSWERED = "answered"
    NOTHING = "nothing"  # the engine received nothing
    DIED_WITH_IT = "died_with_it"


class Relay:
    """Forwards completions. One upstream call per request; another only if none was received."""

    def __init__(
        self,
        access: Access,
        reader: Reader,
        probes: Probes,
        issuer: Issuer,
        notes: ScopeNotes,
        fleet: Fleet,
        router: Router,
        room: WaitingRoom,
        metrics: Metrics,
        recents: Recents,
        tracer: Tracer,
        recorder: Recorder,
        request_log: RequestLog,
    ) -> None:
        self._access, self._reader, self._issuer, self._notes = access, reader, issuer, notes
        self._probes = probes
        self._fleet, self._router, self._room, self._metrics = fleet, router, room, metrics
        self._recents, self._tracer, self._recorder = recents, tracer, recorder
        self._request_log = request_log

    async def serve(self, request: Request, reply: Reply) -> None:
        """Answer a `POST` to one of the completion APIs; 429 where too many wait."""
        trace = self._tracer.begin(operation(request.path), request.headers)
        try:
            async with self._room.place(lambda: self._access.principal(request)) as waited:
                if waited:
                    self._metrics.waited_seconds.observe(waited)
                await self._serve(request, reply, waited, trace)
        except BaseException as error:  # a client that left ends it too
            trace.failed(type(error).__name__)
            raise
        finally:
            trace.end()

    async def _serve(self, request: Request, reply: Reply, waited: float, trace: Trace) -> None:
        """Place and forward it, on another instance if need be.

        Each try decides anew: while an engine was waited for, permissions may have changed (I14).
        """
        began = time.perf_counter()
        tried: list[Instance] = []
        died = 0  # of those tried: had the request and ended
        came = math.inf if waited else reply.came
        for _ in range(TRIES_MAX):
            job = await self._reader.job(
                request, began, came=came, waited_seconds=waited, trace=trace
            )
            came = math.inf
            first = self._router.reader(job.body["model"], tried)
            prompt = await self._reader.prompt(job, first)
            epochs = await self._epochs(prompt)
            if not tried:
                self._probes.look(job.caller, prompt)
            route = self._router.route(_asked(job, prompt, epochs), tried)
            try:
                instance = route.instance
                if not same_text(first, instance):
                    prompt = await self._reader.prompt(job, instance)
                    epochs = await self._epochs(prompt)
                sending = await self._sending(job, instance, prompt, epochs)
                if sending is None:
                    continue
                sent = await self._sent(job, route, prompt, sending, reply, last=died > 0)
                if sent is _Sent.ANSWERED:
                    return
                died += sent is _Sent.DIED_WITH_IT
                tried.append(instance)
            finally:
                route.close()
        raise Unavailable("no engine could be reached, or permissions did not come to rest")

    async def _epochs(self, prompt: Prompt) -> list[int]:
        return [await self._access.epoch(segment.scope) for segment in prompt.segments]

    async def _sent(
        self,
        job: Job,
        route: Route,
        prompt: Prompt,
        sending: _Sending,
        reply: Reply,
        *,
        last: bool,
    ) -> _Sent:
        """Forward, and tell whether another instance may be tried.

        It may if the engine received nothing; or, once per request, if it ended before the first
        byte of an answer, so that it cannot go on with it. Once: a request may be what ends them.
        """
        try:
            await self._forward(job, route, prompt, sending, reply)
        except NotSent as error:
            self._metrics.engine_error("not_sent")
            if not isinstance(error, Busy):
                self._fleet.lost(route.instance, str(error))
            return _Sent.NOTHING
        except Unavailable:
            self._metrics.engine_error("broke_off")
            route.failed()
            if not (reply.started or last) and await self._fleet.gone(route.instance):
                return _Sent.DIED_WITH_IT
            self._fleet.suspect(route.instance)
            raise
        return _Sent.ANSWERED

    async def _forward(
        self, job: Job, route: Route, prompt: Prompt, sending: _Sending, reply: Reply
    ) -> None:
        with comparison(job, route.instance, self._recents, sending.own_epoch) as compared:
            told = await self._passed(job, route, prompt, sending, reply, compared)
        if told is not None:
            tell_usage(job, told.usage)
            self._recorder.note(job, route.instance, prompt, told)
            self._request_log.note(job, route.instance, prompt, sending.epochs, told)
            with contextlib.suppress(Unavailable):
                if await self._access.epoch(job.caller.private) == sending.own_epoch:
                    self._recents.add(_recent(job, route, prompt, sending, told))

    async def _passed(
        self,
        job: Job,
        route: Route,
        prompt: Prompt,
        sending: _Sending,
        reply: Reply,
        compared: Compared | None,
    ) -> Told | None:
        """Send it, and pass on what comes; None where that is the engine's refusal."""
        instance = route.instance
        self._metrics.own_seconds.observe(time.perf_counter() - job.began)
        tell_route(job, route)
        answer = await instance.pool.request(
            "POST",
            job.api.path,
            [*instance.headers(), *job.trace.onward(job.headers)],
            sending.body,
            timeout_seconds=HEAD_SECONDS_MAX,
        )
        try:
            route.hear(answer)
            if answer.status != 200:
                if answer.status >= 500:
                    route.failed()
                elif answer.status not in (401, 403):  # which are about our own key
                    route.refused()
                job.trace.failed(str(answer.status))
                await pass_error(answer, sending.secrets, reply, self._metrics)
                return None
            passing = Passing(
                *(job.api, job.body, job.detail, prompt, route, self._metrics, job.request_id),
                org=job.caller.principal.org,
                came=job.began - job.waited_seconds,
                compared=compared,
            )
            if job.body.get("stream"):
                return await passing.stream(answer, reply)
            return await passing.whole(answer, reply)
        finally:
            answer.close()

    async def _sending(
        self, job: Job, instance: Instance, prompt: Prompt, epochs: Sequence[int]
    ) -> _Sending | None:
        """What to send; None where the registry changed since the job was read.

        An epoch of now with a membership of before would open what was just closed.
        """
        waited = job.large
        scoped = instance.isolation is Isolation.SCOPED
        if scoped and not self._notes.known(prompt.segments, epochs):
            waited = True
            if not await self._notes.note(prompt.segments, epochs):
                return None
        if not await self._access.stands(job.caller.versions, waited=waited):
            return None
        salt = self._issuer.salt(prompt.segments, epochs)
        ticket = None
        if instance.isolation is Isolation.SCOPED and instance.fingerprint is not None:
            ticket = self._issuer.ticket(
                job.caller.principal,
                prompt.segments,
                epochs,
                prompt.tokens,
                namespace=instance.fingerprint,
                uses=job.uses,
            )
        clean = stripped(job.body, job.api)
        data = engine_body(
            *(clean, job.api),
            salt=salt,
            ticket=ticket,
            tokens=prompt.tokens,
            written=job.written,
        )
        known = (salt.encode(), *((ticket[-86:].encode(),) if ticket else ()))
        # The last segment is the caller's own, and nothing has changed since its epoch was read.
        return _Sending(data, known, tuple(epochs), epochs[-1])


def _recent(job: Job, route: Route, prompt: Prompt, sending: _Sending, told: Told) -> Recent:
    """What is remembered of an answered request, for its sender to ask about."""
    decision = (told.report or {}).get("decision")
    return Recent(
        request_id=job.request_id,
        principal=job.caller.principal.uid,
        sender=f"{job.caller.principal.org}/{job.caller.principal.name}",
        owner=job.caller.private,
        own_epoch=sending.own_epoch,
        path=job.api.path,
        content=job.content,
        at_seconds=time.monotonic(),
        instance=route.instance.address.name,
        whole_prompt=route.instance.isolation is not Isolation.SCOPED,
        epochs=tuple(zip([s.scope for s in prompt.segments], sending.epochs, strict=True)),
        cached=told.usage.cached if told.usage is not None else None,
        prompt_tokens=told.usage.prompt_tokens if told.usage is not None else None,
        fetch_reason=str(decision.get("reason", "")) if isinstance(decision, dict) else "",
    )


def _asked(job: Job, prompt: Prompt, epochs: Sequence[int]) -> Asked:
    text = b""
    if prompt.tokens is None:  # a client writes prompts alike that begin alike: no need to encode
        text = job.content[max(0, job.content.find(b'"%b"' % job.api.text.encode())) :]
    return Asked(
        job.body["model"],
        prompt.segments,
        tuple(epochs),
        prompt.tokens,
        text,
        streams=job.body.get("stream") is True,
    )
