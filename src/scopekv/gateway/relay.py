"""One completion request, from the client's bytes to the engine's answer (design: steps 1 to 8)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import msgspec

from scopekv.core.scopes import Principal
from scopekv.errors import Misuse, Overloaded, PromptTooLong, Unavailable
from scopekv.gateway.access import Access
from scopekv.gateway.bodies import engine_body, read_body, sequences, stripped
from scopekv.gateway.errors_http import http_error
from scopekv.gateway.http.client import Busy, NotSent
from scopekv.gateway.http.messages import Headers, Request
from scopekv.gateway.http.reply import Reply
from scopekv.gateway.instances import Fleet, Instance, Isolation
from scopekv.gateway.metrics import Metrics
from scopekv.gateway.passing import CLAIMS, Passing, pass_error, to_pass
from scopekv.gateway.permits import Issuer
from scopekv.gateway.prompts import (
    Caller,
    ModelText,
    Prompt,
    chat_prompt,
    completion_prompt,
    private_prompt,
)
from scopekv.gateway.routing import Asked, Route, Router, same_text
from scopekv.gateway.scope_notes import ScopeNotes
from scopekv.gateway.waiting import WaitingRoom

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
HEAD_SECONDS_MAX = 600.0
NOTED_MAX = 10_000
LARGE_BYTES = 128 << 10
TRIES_MAX = 16
_JSON: Headers = [(b"content-type", b"application/json")]


@dataclass(frozen=True, slots=True, repr=False)
class _Job:
    """A request as read: who, what, and how to tell of it."""

    path: str
    caller: Caller
    body: dict[str, Any]
    uses: int
    detail: bool
    large: bool  # too large to be read on the event loop
    headers: Headers
    began: float


@dataclass(frozen=True, slots=True, repr=False)
class _Sending:
    """A body for an engine, and the secrets in it that no answer may repeat."""

    body: bytes
    secrets: tuple[bytes, ...]


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
        issuer: Issuer,
        notes: ScopeNotes,
        fleet: Fleet,
        router: Router,
        room: WaitingRoom,
        metrics: Metrics,
    ) -> None:
        self._access, self._issuer, self._notes = access, issuer, notes
        self._fleet, self._router, self._room, self._metrics = fleet, router, room, metrics
        self._noted: dict[tuple[str, bytes], bytes] = {}

    async def serve(self, request: Request, reply: Reply) -> None:
        """Answer `POST /v1/chat/completions` or `/v1/completions`; 429 where too many wait."""
        try:
            if not self._room.take():
                principal = await self._access.principal(request)
                await self._room.wait(principal.org)
        except Overloaded as error:
            status, body = http_error(error)
            self._metrics.answered(request.path, status)
            wait = (b"retry-after", b"%d" % error.retry_after_seconds)
            reply.send(status, [*_JSON, wait], msgspec.json.encode(body))
            return
        try:
            await self._serve(request, reply)
        finally:
            self._room.leave()

    async def _serve(self, request: Request, reply: Reply) -> None:
        """Place and forward it, on another instance if need be.

        Each try decides anew: while an engine was waited for, permissions may have changed (I14).
        """
        began = time.perf_counter()
        tried: list[Instance] = []
        died = 0  # of those tried: had the request and ended
        for _ in range(TRIES_MAX):
            job = await self._job(request, began)
            reader = self._router.reader(job.body["model"], tried)
            prompt = await self._prompt(job, reader)
            epochs = await self._epochs(prompt)
            route = self._router.route(_asked(job, prompt, epochs), tried)
            try:
                instance = route.instance
                if not same_text(reader, instance):
                    prompt = await self._prompt(job, instance)
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
        job: _Job,
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

    async def _job(self, request: Request, began: float) -> _Job:
        principal = await self._access.principal(request)
        body = read_body(request.body)
        await self._note_claims(principal, request)
        caller = await self._access.caller(principal, request, body)
        detail = request.header(b"x-scopekv-detail") == b"1"
        large = len(request.body) > LARGE_BYTES
        headers = to_pass(request)
        return _Job(request.path, caller, body, sequences(body), detail, large, headers, began)

    async def _forward(
        self, job: _Job, route: Route, prompt: Prompt, sending: _Sending, reply: Reply
    ) -> None:
        instance = route.instance
        self._metrics.own_seconds.observe(time.perf_counter() - job.began)
        answer = await instance.pool.request(
            "POST",
            job.path,
            [*instance.headers(), *job.headers],
            sending.body,
            timeout_seconds=HEAD_SECONDS_MAX,
        )
        async with answer:
            route.hear(answer)
            if answer.status != 200:
                if answer.status >= 500:
                    route.failed()
                await pass_error(answer, sending.secrets, reply, self._metrics)
                return
            passing = Passing(job.path, job.body, job.detail, prompt, route, self._metrics)
            if job.body.get("stream"):
                await passing.stream(answer, reply)
            else:
                await passing.whole(answer, reply)

    async def _prompt(self, job: _Job, instance: Instance) -> Prompt:
        """Render and tokenise for this instance. Raises `Misuse` or `PromptTooLong`."""
        texts = instance.texts if instance.isolation is Isolation.SCOPED else None
        chat = job.path == CHAT
        given = job.body.get("messages" if chat else "prompt")
        if not isinstance(given, list if chat else (list, str)):
            raise Misuse("a chat needs messages; a completion needs a prompt")
        if texts is None:
            return private_prompt(job.caller)
        if chat and len(given) > instance.max_model_len:
            raise PromptTooLong(f"{len(given)} messages; the context is {instance.max_model_len}")
        make = chat_prompt if chat else _completion
        if job.large:

            def aside() -> Prompt:
                with texts.lock:
                    return make(job.body, job.caller, texts.aside)

            prompt = await asyncio.to_thread(aside)
        else:
            prompt = make(job.body, job.caller, texts.here)
        if prompt.tokens is not None and len(prompt.tokens) >= instance.max_model_len:
            raise PromptTooLong(
                f"the prompt has {len(prompt.tokens)} tokens; the model's context is "
                f"{instance.max_model_len}, answer included. Shorten the messages."
            )
        return prompt

    async def _sending(
        self, job: _Job, instance: Instance, prompt: Prompt, epochs: Sequence[int]
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
        data = engine_body(stripped(job.body), salt=salt, ticket=ticket, tokens=prompt.tokens)
        return _Sending(data, (salt.encode(), *((ticket[-86:].encode(),) if ticket else ())))

    async def _note_claims(self, principal: Principal, request: Request) -> None:
        """A request that names another tenant than its credential: the credential wins (I8)."""
        for name in CLAIMS:
            claimed = request.header(name)
            if claimed is None or claimed.decode("latin-1") == principal.org:
                continue
            if self._noted.get((principal.uid, name)) != claimed:  # once, not at every request
                if len(self._noted) >= NOTED_MAX:
                    self._noted.clear()
                self._noted[principal.uid, name] = claimed
                await self._access.audit(
                    principal, "claim_organisation", f"header:{name.decode()}", "credential_wins"
                )


def _asked(job: _Job, prompt: Prompt, epochs: Sequence[int]) -> Asked:
    text = b""
    if prompt.tokens is None:  # JSON of a list begins alike where the lists do
        text = msgspec.json.encode(job.body["messages" if job.path == CHAT else "prompt"])
    return Asked(
        job.body["model"],
        prompt.segments,
        tuple(epochs),
        prompt.tokens,
        text,
        streams=job.body.get("stream") is True,
    )


def _completion(body: dict[str, Any], caller: Caller, model: ModelText) -> Prompt:
    """Text is segmented; lists (token ids, several prompts) stay with their caller."""
    prompt = body["prompt"]
    plain = body.get("add_special_tokens", True) is True and not any(
        body.get(name) for name in ("echo", "prompt_embeds", "truncate_prompt_tokens")
    )
    if isinstance(prompt, str) and plain:
        return completion_prompt(prompt, caller, model)
    return private_prompt(caller)
