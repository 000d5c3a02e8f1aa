"""One completion request, from the client's bytes to the engine's answer (design: steps 1 to 8)."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any

import msgspec

from scopekv.core.scopes import Principal
from scopekv.errors import Misuse, PromptTooLong, Unavailable
from scopekv.gateway.access import Access
from scopekv.gateway.bodies import engine_body, read_body, sequences, stripped
from scopekv.gateway.http.answer import UpstreamResponse
from scopekv.gateway.http.client import Busy, NotSent
from scopekv.gateway.http.messages import Headers, Request, end_to_end
from scopekv.gateway.http.reply import Reply
from scopekv.gateway.instances import Fleet, Instance, Isolation
from scopekv.gateway.metrics import Metrics
from scopekv.gateway.permits import Issuer
from scopekv.gateway.prompts import (
    Caller,
    ModelText,
    Prompt,
    chat_prompt,
    completion_prompt,
    private_prompt,
)
from scopekv.gateway.scope_notes import ScopeNotes
from scopekv.gateway.usage import (
    Shares,
    StreamTap,
    hit_tokens,
    read_usage,
    take_report,
    with_detail,
)

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
HEAD_SECONDS_MAX = 600.0
ERROR_BYTES_MAX = 1 << 16
ANSWER_BYTES_MAX = 64 << 20
NOTED_MAX = 10_000
LARGE_BYTES = 128 << 10
TRIES_MAX = 16
_JSON: Headers = [(b"content-type", b"application/json")]
# Credentials, what narrows, and what would pick a request's name, rank or encoding in the engine.
_STRIPPED_HEADERS = frozenset(
    (
        *(b"authorization", b"cookie", b"x-api-key", b"api-key", b"host", b"expect"),
        *(b"accept-encoding", b"content-type", b"content-encoding", b"x-request-id"),
        *(b"x-session-id", b"x-correlation-id", b"x-data-parallel-rank", b"x-vllm-priority"),
        *(b"openai-organization", b"openai-project"),
    )
)
# "endpoint-load-metrics-format" makes vLLM tell its load, which is all tenants' (L10).
_STRIPPED_PREFIXES = (b"x-scopekv-", b"x-vllm-", b"endpoint-load-metrics")
_CLAIMS = (b"openai-organization", b"x-scopekv-org")  # headers that could name another tenant


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


class Relay:
    """Forwards completions. One upstream call per request; another only if none was received."""

    def __init__(
        self,
        access: Access,
        issuer: Issuer,
        notes: ScopeNotes,
        fleet: Fleet,
        metrics: Metrics,
    ) -> None:
        self._access, self._issuer, self._notes = access, issuer, notes
        self._fleet, self._metrics = fleet, metrics
        self._noted: dict[tuple[str, bytes], bytes] = {}

    async def serve(self, request: Request, reply: Reply) -> None:
        """Answer `POST /v1/chat/completions` or `/v1/completions`.

        Each try decides anew: while an engine was waited for, permissions may have changed (I14).
        """
        began = time.perf_counter()
        tried: list[Instance] = []
        for _ in range(TRIES_MAX):
            job = await self._job(request, began)
            instance = self._fleet.choose(job.body["model"], tried)
            instance.in_flight += 1  # at once: others choose while this one waits
            try:
                prompt = await self._prompt(job, instance)
                sending = await self._sending(job, instance, prompt)
                if sending is None:
                    continue
                if await self._sent(job, instance, prompt, sending, reply):
                    return
                tried.append(instance)
            finally:
                instance.in_flight -= 1
        raise Unavailable("no engine could be reached, or permissions did not come to rest")

    async def _sent(
        self, job: _Job, instance: Instance, prompt: Prompt, sending: _Sending, reply: Reply
    ) -> bool:
        """Forward; False where the engine received nothing, so that another may be tried."""
        try:
            await self._forward(job, instance, prompt, sending, reply)
        except NotSent as error:
            self._metrics.engine_error("not_sent")
            if not isinstance(error, Busy):
                self._fleet.lost(instance, str(error))
            return False
        except Unavailable:
            self._metrics.engine_error("broke_off")
            self._fleet.suspect(instance)
            raise
        return True

    async def _job(self, request: Request, began: float) -> _Job:
        principal = await self._access.principal(request)
        body = read_body(request.body)
        await self._note_claims(principal, request)
        caller = await self._access.caller(principal, request, body)
        detail = request.header(b"x-scopekv-detail") == b"1"
        large = len(request.body) > LARGE_BYTES
        headers = _to_pass(request)
        return _Job(request.path, caller, body, sequences(body), detail, large, headers, began)

    async def _forward(
        self, job: _Job, instance: Instance, prompt: Prompt, sending: _Sending, reply: Reply
    ) -> None:
        self._metrics.own_seconds.observe(time.perf_counter() - job.began)
        answer = await instance.pool.request(
            "POST",
            job.path,
            [*instance.headers(), *job.headers],
            sending.body,
            timeout_seconds=HEAD_SECONDS_MAX,
        )
        async with answer:
            if answer.status != 200:
                await self._pass_error(answer, sending.secrets, reply)
            elif job.body.get("stream"):
                await self._pass_stream(answer, job, prompt, reply)
            else:
                await self._pass_whole(answer, job, prompt, reply)

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

    async def _sending(self, job: _Job, instance: Instance, prompt: Prompt) -> _Sending | None:
        """What to send; None where the registry changed since the job was read.

        An epoch of now with a membership of before would open what was just closed.
        """
        epochs = [await self._access.epoch(segment.scope) for segment in prompt.segments]
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

    async def _pass_whole(
        self, answer: UpstreamResponse, job: _Job, prompt: Prompt, reply: Reply
    ) -> None:
        content, report = take_report(await answer.read(ANSWER_BYTES_MAX))
        usage = read_usage(content)
        if usage is not None:
            self._metrics.counted(usage.prompt_tokens, hit_tokens(usage, prompt.segments))
            if job.detail:
                content = with_detail(content, usage, Shares(prompt.segments), report)
        self._metrics.answered(job.path, 200)
        reply.send(200, _passed(answer.headers), content)

    async def _pass_stream(
        self, answer: UpstreamResponse, job: _Job, prompt: Prompt, reply: Reply
    ) -> None:
        options = job.body.get("stream_options") or {}
        shares = Shares(prompt.segments) if job.detail else None
        tap = StreamTap(asked=options.get("include_usage") is True, shares=shares)
        # What has come goes on in one write: each wakes the client, and costs more than parsing.
        await reply.start(200, _passed(answer.headers), tap.feed(answer.take()))
        last = b""
        async for chunk in answer.stream():
            passed = tap.feed(chunk)
            if answer.ended:
                last = passed
            elif passed:
                await reply.write(passed)
        await reply.finish(last + tap.rest())
        self._metrics.answered(job.path, 200)
        if tap.usage is not None:
            self._metrics.counted(tap.usage.prompt_tokens, hit_tokens(tap.usage, prompt.segments))

    async def _pass_error(
        self, answer: UpstreamResponse, secrets: tuple[bytes, ...], reply: Reply
    ) -> None:
        """Pass the engine's own words on, unless they repeat what a client must not see."""
        content = await answer.read(ERROR_BYTES_MAX)
        if answer.status in (401, 403):
            raise Unavailable("the engine refused this gateway's own key")
        if any(secret in content for secret in secrets) or not _is_error(content):
            raise Misuse("the engine did not accept this request; check its fields and their types")
        self._metrics.answered("engine_error", answer.status)
        wait = answer.header(b"retry-after")
        reply.send(answer.status, [*_JSON, *([(b"retry-after", wait)] if wait else [])], content)

    async def _note_claims(self, principal: Principal, request: Request) -> None:
        """A request that names another tenant than its credential: the credential wins (I8)."""
        for name in _CLAIMS:
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


def _completion(body: dict[str, Any], caller: Caller, model: ModelText) -> Prompt:
    """Text is segmented; lists (token ids, several prompts) stay with their caller."""
    prompt = body["prompt"]
    plain = body.get("add_special_tokens", True) is True and not any(
        body.get(name) for name in ("echo", "prompt_embeds", "truncate_prompt_tokens")
    )
    if isinstance(prompt, str) and plain:
        return completion_prompt(prompt, caller, model)
    return private_prompt(caller)


def _to_pass(request: Request) -> Headers:
    return [
        (name, value)
        for name, value in end_to_end(request.headers)
        if name not in _STRIPPED_HEADERS and not name.startswith(_STRIPPED_PREFIXES)
    ]


def _passed(headers: Headers) -> Headers:
    hidden = (b"server", b"date", b"endpoint-load-metrics")
    return [(k, v) for k, v in end_to_end(headers) if k not in hidden]


def _is_error(content: bytes) -> bool:
    try:
        decoded = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return isinstance(decoded, dict) and "error" in decoded
