"""The HTTP face of the plugin: `/v1/scopekv/...`, under the server's own `--api-key`.

Loaded only where VLLM_PLUGINS names `scopekv` (vLLM asks for that of every endpoint plugin).
"""

from __future__ import annotations

import re
import time
from argparse import Namespace as Arguments
from typing import Any

from fastapi import APIRouter, FastAPI, HTTPException, Request, Response

from scopekv.core.backlogs import HEADER, Backlogs
from scopekv.engines.vllm.plugin import installed_guard
from scopekv.engines.vllm.purge import LINKS_MAX
from scopekv.engines.vllm.template import template_of
from scopekv.errors import ConfigError

TOKENS_MAX = 1_000_000
HASHED_TOKENS_MAX = 4096
FORGETFUL = ("engine", "host")
READ_SECONDS_MAX = 600


class ScopeKVEndpoint:
    """Entry point of `vllm.endpoint_plugins`."""

    name = "scopekv"
    required_tasks = ("generate",)

    def attach_router(self, app: FastAPI) -> None:
        app.include_router(_router())
        app.add_middleware(LoadExchange)  # what vLLM adds after this, its key check, goes before

    async def init_state(self, engine_client: Any, state: Any, args: Arguments) -> None:
        """Refuse to start where vLLM would write tickets and prompts to its log."""
        guard = installed_guard()
        if guard is None:
            return
        if getattr(args, "enable_log_requests", False):
            raise ConfigError(
                "--enable-log-requests writes prompts and tickets to the log. Start without it."
            )
        if guard.settings.refuse:
            guard_front_end(engine_client)
        state.scopekv_client = engine_client


def guard_front_end(engine_client: Any) -> None:
    """Refuse requests that carry no ticket at all before they reach the engine (HTTP 400)."""
    processor = engine_client.input_processor
    original = processor.process_inputs

    def process_inputs(request_id: str, prompt: Any, params: Any, *rest: Any, **named: Any) -> Any:
        extra = getattr(params, "extra_args", None) or {}
        if not (extra.get("kv_transfer_params") or {}).get("scopekv"):
            raise ValueError("this engine serves requests with a ScopeKV ticket only")
        return original(request_id, prompt, params, *rest, **named)

    processor.process_inputs = process_inputs


class LoadExchange:
    """Tells each gateway what the others have here: one header in, one out (`core.backlogs`).

    Nothing in the engine is asked, so it is as fresh while a long step runs. Every API server
    process has its own, and each word says all that its gateway has.
    """

    def __init__(self, app: Any) -> None:
        self._app = app
        self._backlogs = Backlogs()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        sender = self._backlogs.told(_load_header(scope), time.monotonic())
        if sender is None:
            await self._app(scope, receive, send)
            return

        async def send_with_load(message: Any) -> None:
            if message["type"] == "http.response.start":
                others = self._backlogs.others(sender, time.monotonic()).written()
                message["headers"] = [*message.get("headers", ()), (HEADER, others)]
            await send(message)

        await self._app(scope, receive, send_with_load)


def _load_header(scope: Any) -> bytes | None:
    """Only where vLLM has checked the key: its other pages, and OPTIONS, are open to anybody."""
    if scope["type"] != "http" or scope["method"] == "OPTIONS":
        return None
    if not scope["path"].removeprefix(scope.get("root_path", "")).startswith("/v1/"):
        return None
    return next((value for name, value in scope["headers"] if name == HEADER), None)


def _router() -> APIRouter:
    router = APIRouter(prefix="/v1/scopekv")

    @router.get("/status")
    async def status(request: Request, live: bool = False) -> Any:
        """What the engine is. It waits for the running step only the first time, or if `live`."""
        state = request.app.state
        if live or not hasattr(state, "scopekv_status"):
            state.scopekv_status = await _ask(request, "scopekv_status")
        return state.scopekv_status

    @router.get("/template")
    async def template(request: Request) -> Any:
        return template_of(request.app.state)

    @router.post("/pin")
    async def pin(request: Request) -> Any:
        body = await _body(request, label=str, ticket=str, token_ids=list)
        ids = _ids(body["token_ids"], TOKENS_MAX)
        return await _ask(request, "scopekv_pin", (body["label"], body["ticket"], ids))

    @router.post("/unpin")
    async def unpin(request: Request) -> Any:
        body = await _body(request, label=str)
        return await _ask(request, "scopekv_unpin", (body["label"],))

    @router.post("/purge")
    async def purge(request: Request) -> Any:
        body = await _body(request, scopes=list)
        return await _ask(request, "scopekv_purge", (_pairs(body["scopes"]),))

    @router.post("/expire")
    async def expire(request: Request) -> Any:
        return await _ask(request, "scopekv_expire")

    @router.post("/forget")
    async def forget(request: Request) -> Any:
        return await _ask(request, "scopekv_forget", _forgotten(await _body(request, media=list)))

    @router.get("/tiers")
    async def tiers(request: Request) -> Any:
        return await _ask(request, "scopekv_tiers")

    @router.get("/snapshot")
    async def snapshot(request: Request, blocks: bool = True) -> Response:
        """What the engine holds, packed; without `blocks` only its name and event number."""
        answer = await _ask(request, "scopekv_snapshot", (blocks,))
        return Response(answer["packed"], media_type="application/octet-stream")

    @router.post("/hashes")
    async def hashes(request: Request) -> Any:
        body = await _body(request, ticket=str, token_ids=list)
        ids = _ids(body["token_ids"], HASHED_TOKENS_MAX)
        return await _ask(request, "scopekv_hashes", (body["ticket"], ids))

    return router


def _ids(ids: list[Any], tokens_max: int) -> list[int]:
    if len(ids) > tokens_max or any(type(i) is not int or i < 0 for i in ids):
        raise HTTPException(400, f"token_ids takes up to {tokens_max} non-negative integers")
    return ids


def _pairs(scopes: list[Any]) -> list[list[Any]]:
    """Check the (scope id hex, epoch) pairs of a purge."""
    fit = len(scopes) <= LINKS_MAX and all(
        isinstance(pair, list)
        and len(pair) == 2
        and isinstance(pair[0], str)
        and re.fullmatch("[0-9a-f]{32}", pair[0])
        and type(pair[1]) is int
        and 0 <= pair[1] < 2**63 - 1
        for pair in scopes
    )
    if not fit:
        raise HTTPException(400, f"scopes takes up to {LINKS_MAX} pairs [scope id hex, epoch]")
    return scopes


def _forgotten(body: dict[str, Any]) -> tuple[list[str], list[str] | None, float]:
    """Check what is to be forgotten, and which outer tiers are read for how long."""
    media, read, seconds = body["media"], body.get("read"), body.get("seconds", 60)
    if not all(medium in FORGETFUL for medium in media):
        raise HTTPException(400, f"media takes {', '.join(FORGETFUL)}: outer tiers are purged")
    if read is not None and not (isinstance(read, list) and all(type(i) is str for i in read)):
        raise HTTPException(400, "read takes a list of tiers, or null for all")
    if type(seconds) not in (int, float) or not 0 < seconds <= READ_SECONDS_MAX:
        raise HTTPException(400, f"seconds takes a number up to {READ_SECONDS_MAX}")
    return media, read, float(seconds)


async def _ask(request: Request, method: str, args: tuple[Any, ...] = ()) -> Any:
    client = getattr(request.app.state, "scopekv_client", None)
    if client is None:
        raise HTTPException(503, "the ScopeKV plugin is not active in this server")
    answers = await client.collective_rpc(method, args=args)
    answer = answers[0] if answers else {"error": "the engine did not answer"}
    if isinstance(answer, dict) and "error" in answer:
        raise HTTPException(409, answer["error"])
    return answer


async def _body(request: Request, **types: type) -> dict[str, Any]:
    try:
        body = await request.json()
    except ValueError as error:
        raise HTTPException(400, "the body is not JSON") from error
    for name, kind in types.items():
        if not isinstance(body, dict) or not isinstance(body.get(name), kind):
            raise HTTPException(400, f"the body needs {name!r} of type {kind.__name__}")
    return dict(body)
