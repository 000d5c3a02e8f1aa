"""`diagnostics` of the Messages API: where a request parts from an earlier one of its caller.

In Anthropic's words (cache diagnostics, as of the anthropic package 2.14). The comparison runs
beside the engine's work; an answer that is there first waits a little, then says "pending" as
theirs do, with a reason of null.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from scopekv.core.explaining import Divergence, Member, divergence
from scopekv.errors import Misuse
from scopekv.gateway.apis import APIS
from scopekv.gateway.bodies import read_body
from scopekv.gateway.explaining.comparing import aside, prompt_of
from scopekv.gateway.explaining.recents import Recent, Recents
from scopekv.gateway.instances import Instance
from scopekv.gateway.prompts import ModelText
from scopekv.gateway.reading import Job

WAIT_SECONDS_MAX = 1.0
log = logging.getLogger("scopekv.explaining")
Answer = dict[str, Any] | None  # None: the request only goes on from the earlier one
Told = Callable[[], Awaitable[Answer]]
_NOT_FOUND = {"type": "previous_message_not_found"}
_UNAVAILABLE = {"type": "unavailable"}
_ASKED_FOR_NONE: AbstractContextManager[None] = nullcontext()
_PENDING: Answer = {"cache_miss_reason": None}


def comparison(
    job: Job, instance: Instance, recents: Recents, own_epoch: int
) -> AbstractContextManager[Told | None]:
    """Compare while the request is served; None where it does not ask for it.

    An id of another caller, or of another end user or session of this one, is not found, like one
    that never was (L10); nor is one of before a revocation (L6). `own_epoch`: of the caller's
    private scope.
    """
    name = job.api.compared_with(job.body)
    return _ASKED_FOR_NONE if name is None else _comparing(name, job, instance, recents, own_epoch)


@contextmanager
def _comparing(
    name: str, job: Job, instance: Instance, recents: Recents, own_epoch: int
) -> Iterator[Told | None]:
    earlier = recents.get(name)
    mine = (job.caller.private, own_epoch)
    own = earlier is not None and (earlier.owner, earlier.own_epoch) == mine
    task = asyncio.create_task(_compared(job, instance, earlier if own else None))

    async def told() -> Answer:
        done, _ = await asyncio.wait([task], timeout=WAIT_SECONDS_MAX)
        if not done:
            return _PENDING
        error = task.exception()
        if error is None:
            return task.result()
        log.error("unexpected %s in a comparison of prompts", type(error).__name__)
        return {"cache_miss_reason": _UNAVAILABLE}  # what was computed is answered all the same

    try:
        yield told
    finally:
        task.cancel()


async def _compared(job: Job, instance: Instance, earlier: Recent | None) -> Answer:
    if earlier is None:
        return {"cache_miss_reason": _NOT_FOUND}

    def compare(model: ModelText) -> Divergence | None:
        was = prompt_of(APIS[earlier.path], read_body(earlier.content), model, job.caller)
        now = prompt_of(job.api, job.body, model, job.caller)
        return divergence(was, now, instance.block_size or 32)

    try:
        found = await aside(instance, compare)
    except Misuse:  # what only the engine can render
        return {"cache_miss_reason": _UNAVAILABLE}
    if found is None:
        return None
    if found.member is Member.OTHER:
        return {"cache_miss_reason": _UNAVAILABLE}
    reason = {"type": f"{found.member.value}_changed"}
    return {"cache_miss_reason": reason | {"cache_missed_input_tokens": found.missed_tokens}}
