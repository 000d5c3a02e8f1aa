"""`POST /v1/scopekv/explain`: why the caller's own request was not read from the cache.

    {"request_id": "req_..."}                          a request of late, against those before it
    {"request": {...}, "api": "/v1/messages"}          a body, against the caller's last requests
    {"earlier": {...}, "later": {...}, "api": "..."}   two bodies; nothing is remembered

`api` is a completion API's path, the chat's by default. Nothing reaches an engine. One comparison
at a time: the others wait in turn, organisation by organisation, as requests for engines do.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from scopekv.core.explaining import Diagnosis, Facts, diagnose
from scopekv.core.fetching import PrefillCurve
from scopekv.core.scopes import Principal
from scopekv.errors import Misuse, NotFound
from scopekv.gateway.access import Access
from scopekv.gateway.apis import APIS, Api
from scopekv.gateway.apis.chat import CHAT_API
from scopekv.gateway.bodies import read_body
from scopekv.gateway.explaining.answer import shown
from scopekv.gateway.explaining.comparing import aside, prompt_of
from scopekv.gateway.explaining.recents import Recent, Recents
from scopekv.gateway.http.messages import Request
from scopekv.gateway.http.reply import Reply
from scopekv.gateway.instances import Instance
from scopekv.gateway.prompts import Caller, ModelText
from scopekv.gateway.routing import Router
from scopekv.gateway.settings import RoutingSettings
from scopekv.gateway.waiting import WaitingRoom
from scopekv.store.scope_keys import Retention

EXPLAIN = "/v1/scopekv/explain"
COMPARED_MAX = 8
COMPARED_BYTES_MAX = 16 << 20  # of the earlier bodies; the latest is always read
PLACES = 1  # what compares also reads every tenant's large requests: it must be free again soon
T = TypeVar("T")
_JSON = [(b"content-type", b"application/json")]


class _Body(msgspec.Struct, forbid_unknown_fields=True):
    request_id: str = ""
    request: dict[str, Any] | None = None
    earlier: dict[str, Any] | None = None
    later: dict[str, Any] | None = None
    api: str = CHAT_API.path


class Explainer:
    """The route, over what `recents` remembers."""

    def __init__(
        self,
        access: Access,
        router: Router,
        recents: Recents,
        retention: Retention,
        routing: RoutingSettings,
    ) -> None:
        self._access, self._router = access, router
        self.room = WaitingRoom(lambda: PLACES, routing, "what explains misses")
        self._recents, self._retention = recents, retention

    async def serve(self, request: Request, reply: Reply) -> None:
        """Answer one caller, who sees its own requests alone."""
        principal = await self._access.principal(request)
        caller = await self._access.caller(principal, request, {}, self._access.versions)
        asked = _read(request.body)
        if asked.request_id:
            answer = await self.recent(caller, asked.request_id)
        elif asked.request is not None:
            answer = await self._given(caller, _api(asked.api), asked.request)
        elif asked.earlier is not None and asked.later is not None:
            answer = await self._two(caller, _api(asked.api), asked.earlier, asked.later)
        else:
            raise Misuse("send request_id, or request, or earlier and later")
        reply.send(200, _JSON, msgspec.json.encode(answer))

    async def recent(self, caller: Caller, request_id: str) -> dict[str, Any]:
        """The answer about one of the caller's own requests. Raises `NotFound`, `Misuse`."""
        recent = self._recents.get(request_id)
        if recent is None or recent.principal != caller.principal.uid:
            raise NotFound(
                "no such request is remembered here; a gateway keeps each caller's last 32, in "
                "memory. Send the two bodies as earlier and later instead"
            )
        before = self._recents.before(recent.owner, request_id)
        body = read_body(recent.content)
        return await self._best(caller, APIS[recent.path], body, before, recent)

    async def _given(self, caller: Caller, api: Api, body: dict[str, Any]) -> dict[str, Any]:
        before = self._recents.before(caller.private, None)
        return await self._best(caller, api, body, before, None)

    async def _two(
        self, caller: Caller, api: Api, earlier: dict[str, Any], later: dict[str, Any]
    ) -> dict[str, Any]:
        instance = self._router.reader(str(later.get("model")))

        def compare(model: ModelText) -> Diagnosis:
            one = prompt_of(api, earlier, model, caller)
            other = prompt_of(api, later, model, caller)
            return diagnose(one, other, instance.block_size or 32)

        diagnosis = await self._compared(caller, instance, compare)
        return shown(diagnosis, cached=None, prefill=_prefill(instance))

    async def _best(
        self,
        caller: Caller,
        api: Api,
        body: dict[str, Any],
        before: list[Recent],
        recent: Recent | None,
    ) -> dict[str, Any]:
        """Compare with the earlier request that has most in common; of equals, the latest."""
        instance = self._router.reader(str(body.get("model")))

        def compare(model: ModelText) -> tuple[Diagnosis, Recent | None]:
            later = prompt_of(api, body, model, caller)
            best: tuple[Diagnosis, Recent | None] | None = None
            for one in _affordable(before):
                try:
                    earlier = prompt_of(APIS[one.path], read_body(one.content), model, caller)
                except Misuse:
                    continue
                facts = self._facts(one, recent) if recent is not None else None
                found = diagnose(earlier, later, instance.block_size or 32, facts)
                if best is None or found.common_tokens > best[0].common_tokens:
                    best = (found, one)
            return best or (diagnose(None, later, instance.block_size or 32), None)

        diagnosis, with_which = await self._compared(caller, instance, compare)
        cached = recent.cached if recent is not None else None
        answer = shown(diagnosis, cached=cached, prefill=_prefill(instance))
        return answer | {"compared_with": with_which.request_id if with_which else None}

    async def _compared(
        self, caller: Caller, instance: Instance, compare: Callable[[ModelText], T]
    ) -> T:
        """Compare when it is the caller's organisation's turn. Raises `Overloaded`, `Misuse`."""

        async def who() -> Principal:
            return caller.principal

        async with self.room.place(who):
            return await aside(instance, compare)

    def _facts(self, earlier: Recent, later: Recent) -> Facts:
        shared = [
            (a, b) for a, b in zip(earlier.epochs, later.epochs, strict=False) if a[0] == b[0]
        ]
        kinds = [scope.kind for scope, _ in later.epochs]
        return Facts(
            cached=later.cached,
            age_seconds=later.at_seconds - earlier.at_seconds,
            retention_seconds=min(map(self._retention.seconds, kinds)) if kinds else None,
            epoch_changed=any(a != b for a, b in shared),
            same_instance=earlier.instance == later.instance,
            whole_prompt=later.whole_prompt,
            fetch_reason=later.fetch_reason,
        )


def _affordable(before: list[Recent]) -> list[Recent]:
    """Of the earlier requests, newest first, those that one answer may cost to read."""
    sizes = itertools.accumulate(len(one.content) for one in before[:COMPARED_MAX])
    count = sum(size <= COMPARED_BYTES_MAX for size in sizes)
    return before[: max(1, count)]


def _prefill(instance: Instance) -> PrefillCurve | None:
    return instance.load.curve() if instance.load.samples else None


def _read(content: bytes) -> _Body:
    try:
        return msgspec.json.decode(content, type=_Body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        place = "too deep" if isinstance(error, RecursionError) else str(error)
        raise Misuse(f"the body is not what this route takes: {place}") from error


def _api(path: str) -> Api:
    if path not in APIS:
        raise Misuse(f"api must be one of {', '.join(APIS)}")
    return APIS[path]
