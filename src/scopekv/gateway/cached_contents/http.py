"""`/v1/cachedContents` (also `/v1beta`): create, list, get, extend, delete.

A text that is kept this way is recognised like any published document: at the start of a message,
of a message part or of a plain prompt, in every API. Nothing refers to it by its name.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import TypeVar
from urllib.parse import parse_qsl

import msgspec

from scopekv.core.scopes import Principal
from scopekv.errors import Misuse, ScopeDenied, ScopeKVError, TooLarge
from scopekv.gateway.access import Access
from scopekv.gateway.administration import Administration
from scopekv.gateway.administration.cached_contents import Limits, NewContent
from scopekv.gateway.cached_contents import forms
from scopekv.gateway.cached_contents.pace import Pace
from scopekv.gateway.errors_http import http_error
from scopekv.gateway.http.messages import Headers, Request
from scopekv.gateway.http.reply import Reply
from scopekv.gateway.instances import Instance
from scopekv.gateway.metrics import Metrics
from scopekv.gateway.routing import Router
from scopekv.gateway.settings import CachedContentSettings, RoutingSettings
from scopekv.gateway.tokens import Stretch
from scopekv.gateway.waiting import WaitingRoom

PATHS = ("/v1/cachedContents", "/v1beta/cachedContents")
PAGE_MAX = 1000
PLACES = 4  # of the threads that all the gateway shares
BODY_BYTES_MAX = 25 << 20
_NARROWS = (b"x-scopekv-user", b"x-scopekv-session")
_JSON: Headers = [(b"content-type", b"application/json")]
BodyType = TypeVar("BodyType", bound=forms.End)


def takes(path: str) -> bool:
    """Whether a path is one of these."""
    return path in PATHS or path.startswith(tuple(f"{one}/" for one in PATHS))


class CachedContents:
    """The routes. Every caller has its own; nobody's are shown to others."""

    def __init__(
        self,
        access: Access,
        administration: Administration,
        router: Router,
        metrics: Metrics,
        settings: CachedContentSettings,
        routing: RoutingSettings,
    ) -> None:
        self.room = WaitingRoom(lambda: PLACES, routing, "cached contents")
        self._access, self._router, self._metrics = access, router, metrics
        self._service = administration.cached_contents
        self._pace = Pace()
        self._on = settings.per_account_max > 0
        self._limits = Limits(
            *(settings.per_account_max, settings.bytes_per_account_max, settings.ttl_seconds_max),
            org_count_max=settings.per_org_max,
            org_bytes_max=settings.bytes_per_org_max,
        )

    async def serve(self, request: Request, reply: Reply) -> None:
        """Answer one request, errors in Google's form; 429 where too many wait."""
        reply.worded = forms.worded
        try:
            async with self.room.place(lambda: self._access.principal(request)):
                answer = await self._answer(request)
        except ScopeKVError as error:
            self._metrics.answered(PATHS[0], http_error(error)[0])
            raise
        self._metrics.answered(PATHS[0], 200)
        reply.send(200, _JSON, msgspec.json.encode(answer))

    async def _answer(self, request: Request) -> object:
        caller = await self._access.principal(request)
        if not self._on:
            raise ScopeDenied("cached contents are switched off here ([cached_contents])")
        if any(request.header(name) for name in _NARROWS):
            raise Misuse(
                "a cached content is for a whole account: X-ScopeKV-User and X-ScopeKV-Session "
                "cannot narrow it"
            )
        _, _, ref = request.path.partition("/cachedContents/")
        if request.method != "GET":
            self._pace.take(caller.uid)
        match request.method, bool(ref):
            case "POST", False:
                return await self._create(caller, request)
            case "GET", False:
                return await self._list(caller, request)
            case "GET", True:
                return forms.shown(await asyncio.to_thread(self._service.show, caller, ref))
            case "PATCH", True:
                return await self._extend(caller, ref, request)
            case "DELETE", True:
                receipt = await asyncio.to_thread(self._service.delete, caller, ref)
                return {"receipt": receipt}
        raise Misuse("cachedContents takes POST and GET, one of them GET, PATCH and DELETE")

    async def _create(self, caller: Principal, request: Request) -> object:
        body = _body(request, forms.New)
        model, text = forms.bare_model(body.model), body.text()
        instance = self._router.reader(model)
        ttl = body.seconds(time.time())
        content = NewContent(
            *(model, body.display_name, text, None),
            ttl_seconds=forms.TTL_SECONDS if ttl is None else ttl,
            wide=body.audience == "org",
        )
        # Before the text is read: that takes long, and is for what can be kept alone.
        await asyncio.to_thread(self._service.check_room, caller, content, self._limits)
        content = replace(content, tokens=await _count(instance, text, caller))
        made = await asyncio.to_thread(self._service.create, caller, content, self._limits)
        return forms.shown(made)

    async def _extend(self, caller: Principal, ref: str, request: Request) -> object:
        ttl = _body(request, forms.End).seconds(time.time())
        if ttl is None:
            raise Misuse("give ttl or expireTime: nothing else of it changes")
        found = await asyncio.to_thread(self._service.extend, caller, ref, ttl, self._limits)
        return forms.shown(found)

    async def _list(self, caller: Principal, request: Request) -> object:
        asked = dict(parse_qsl(request.query))
        size = asked.get("pageSize", "")
        most = int(size) if size.isascii() and size.isdigit() and len(size) < 9 else 0
        most = min(most or PAGE_MAX, PAGE_MAX)
        rows = [forms.shown(one) for one in await asyncio.to_thread(self._service.list, caller)]
        names = [row["name"] for row in rows]
        token = f"cachedContents/{asked.get('pageToken', '')}"
        start = names.index(token) + 1 if token in names else 0
        page = rows[start : start + most]
        more = start + most < len(rows)
        following = {"nextPageToken": page[-1]["name"].partition("/")[2]} if more else {}
        return {"cachedContents": page} | following


async def _count(instance: Instance, text: str, caller: Principal) -> int | None:
    """How many tokens the text has alone; None where this gateway cannot read the model's.

    Read as the caller's own, so that the time it takes tells of nobody else's text (L10).
    """
    if instance.texts is None:
        return None
    own = Stretch(len(text), (caller.org_uid, caller.uid))
    return await instance.texts.aside(lambda model: len(model.tokenizer.tokenize(text, [own])[0]))


def _body(request: Request, kind: type[BodyType]) -> BodyType:
    if len(request.body) > BODY_BYTES_MAX:
        raise TooLarge(f"the body has {len(request.body)} bytes; the limit is {BODY_BYTES_MAX}")
    try:
        return msgspec.json.decode(request.body, type=kind)
    except msgspec.ValidationError as error:
        raise Misuse(f"the body does not fit: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Misuse("the body is not JSON") from error
