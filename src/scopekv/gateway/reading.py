"""One request as read: who asks, for what, and what its prompt is made of."""

from __future__ import annotations

import math
import os
from dataclasses import field
from typing import Any

from scopekv.core.scopes import Principal
from scopekv.core.values import light_value
from scopekv.errors import PromptTooLong
from scopekv.gateway.access import Access
from scopekv.gateway.apis import APIS, Api
from scopekv.gateway.bodies import Written, read_body, sequences
from scopekv.gateway.http.messages import Headers, Request
from scopekv.gateway.instances import Instance, Isolation
from scopekv.gateway.passing import CLAIMS, to_pass
from scopekv.gateway.probes import Probes
from scopekv.gateway.prompts import (
    Caller,
    ModelText,
    Prompt,
    chat_prompt,
    completion_prompt,
    private_prompt,
)
from scopekv.gateway.template import NotRenderable
from scopekv.ports.tracing import NO_TRACE, Trace

LARGE_BYTES = 128 << 10
NOTED_MAX = 10_000


@light_value(repr=False)
class Job:
    """A request as read: who, what, and how to tell of it."""

    api: Api
    caller: Caller
    body: dict[str, Any]
    uses: int
    detail: bool
    large: bool  # too large to be read on the event loop
    headers: Headers
    began: float
    content: bytes
    written: Written | None = None  # where `body` is as the client wrote it
    waited_seconds: float = 0.0  # for a place at an engine, before `began`
    trace: Trace = NO_TRACE
    request_id: str = field(default_factory=lambda: f"req_{os.urandom(12).hex()}")


class Reader:
    """Reads requests for one gateway; forwards nothing."""

    def __init__(self, access: Access, probes: Probes) -> None:
        self._access, self._probes = access, probes
        self._noted: dict[tuple[str, bytes], bytes] = {}

    async def job(
        self,
        request: Request,
        began: float,
        api: Api | None = None,
        *,
        came: float = math.inf,
        waited_seconds: float = 0.0,
        trace: Trace = NO_TRACE,
    ) -> Job:
        """Authenticate and read; `came` as in `Access.principal`.

        Raises `Misuse`, `Refused` or `Unavailable`.
        """
        principal = await self._access.principal(request, came)
        versions = self._access.versions  # of now: whatever is waited for below may change them
        api = api or APIS[request.path]
        read = read_body(request.body)
        body = api.check(read)
        await self._note_claims(principal, request)
        caller = self._probes.held(await self._access.caller(principal, request, body, versions))
        detail = request.header(b"x-scopekv-detail") == b"1"
        large = len(request.body) > LARGE_BYTES
        headers = to_pass(request)
        return Job(
            *(api, caller, body, sequences(body), detail, large, headers, began, request.body),
            waited_seconds=waited_seconds,
            written=Written(request.body, read) if body is read else None,
            trace=trace,
        )

    async def prompt(self, job: Job, instance: Instance) -> Prompt:
        """Render and tokenise for this instance. Raises `Misuse` or `PromptTooLong`."""
        texts = instance.texts if instance.isolation is Isolation.SCOPED else None
        if texts is None:
            return private_prompt(job.caller)
        given = job.body[job.api.text]
        if job.api.chat and isinstance(given, list) and len(given) > instance.max_model_len:
            raise PromptTooLong(f"{len(given)} messages; the context is {instance.max_model_len}")
        if job.large:
            prompt = await texts.aside(lambda model: _read_prompt(job, model))
        else:
            prompt = _read_prompt(job, texts.here)
        if prompt.tokens is not None and len(prompt.tokens) >= instance.max_model_len:
            raise PromptTooLong(
                f"the prompt has {len(prompt.tokens)} tokens; the model's context is "
                f"{instance.max_model_len}, answer included. Shorten the messages."
            )
        return prompt

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


def _read_prompt(job: Job, model: ModelText) -> Prompt:
    """Render and tokenise; what only the engine can render shares nothing with anybody else."""
    if job.api.chat is None:
        return _completion(job.body, job.caller, model)
    try:
        chat = job.api.chat(job.body)
    except NotRenderable:
        return private_prompt(job.caller)
    return chat_prompt(chat, job.caller, model)


def _completion(body: dict[str, Any], caller: Caller, model: ModelText) -> Prompt:
    """Text is segmented; lists (token ids, several prompts) stay with their caller."""
    prompt = body["prompt"]
    plain = body.get("add_special_tokens", True) is True and not any(
        body.get(name) for name in ("echo", "prompt_embeds", "truncate_prompt_tokens")
    )
    if isinstance(prompt, str) and plain:
        return completion_prompt(prompt, caller, model)
    return private_prompt(caller)
