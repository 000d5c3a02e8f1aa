"""A simulated engine: HTTP as vLLM 0.32 with our plugin, the real verdict on tickets, no model.

Stock vLLM (`keys_path` None) and a broken plugin hash the `cache_salt` into the first block only.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from pathlib import Path
from typing import Any, Self

import msgspec

from scopekv.adapters.ed25519 import KeyFile
from scopekv.core.backlogs import HEADER, Backlogs
from scopekv.core.blocks import Namespace
from scopekv.core.events import Medium
from scopekv.errors import Misuse, NotFound, Refused, TooLarge
from scopekv.gateway.apis import APIS
from scopekv.gateway.apis.messages import COUNT_TOKENS, as_chat
from scopekv.gateway.http import Failure, Headers, Reply, Request, Server, internal_failure
from scopekv.simulate.behaviour import Behaviour, Call, Seen
from scopekv.simulate.calls import OwnCalls, metrics_text
from scopekv.simulate.completions import Answer
from scopekv.simulate.model import SimulatedModel
from scopekv.simulate.plugin import SimulatedPlugin
from scopekv.simulate.prefilling import Prefilling
from scopekv.simulate.prefix_cache import PrefixCache
from scopekv.simulate.tiers import SimulatedTiers

_JSON = [(b"content-type", b"application/json")]
_PACKED = [(b"content-type", b"application/octet-stream")]
_TEXT = [(b"content-type", b"text/plain; version=0.0.4; charset=utf-8")]
_EVENTS = [(b"content-type", b"text/event-stream; charset=utf-8")]


class SimulatedEngine:
    """One engine on a loopback port. Use as an async context manager, or `start` and `stop`.

    `keys_path`: the public ticket keys (SCOPEKV_TICKET_KEYS); None is stock vLLM, without plugin.
    `adapters`: names of LoRA adapters that it serves besides the model.
    """

    def __init__(
        self,
        model: SimulatedModel,
        *,
        keys_path: Path | None,
        api_key: str,
        instance_group: str = "default",
        block_size: int = 32,
        blocks_max: int = 4096,
        events_endpoint: str | None = None,
        adapters: tuple[str, ...] = (),
    ) -> None:
        self.model, self.api_key, self.adapters = model, api_key, adapters
        self.cache = PrefixCache(block_size=block_size, blocks_max=blocks_max)
        self.behaviour, self.seen = Behaviour(), Seen()
        self.plugin: SimulatedPlugin | None = None
        self.tiers: SimulatedTiers | None = None
        self.events_endpoint = events_endpoint
        if keys_path is not None:
            namespace = _namespace(model, block_size)
            keys = KeyFile(keys_path)
            self.plugin = SimulatedPlugin(self.cache, keys, namespace, instance_group)
        self._server: Server | None = None
        self._port = 0
        self._turn = asyncio.Lock()
        self._backlogs = Backlogs()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def put_behind(self, tiers: SimulatedTiers) -> None:
        """Give the engine its tiers, before it starts. They are announced with its events."""
        self.tiers = tiers
        if self.plugin is not None:
            self.plugin.bus.watch(tiers.host, Medium.HOST)
            for tier in tiers.tiers:
                self.plugin.bus.watch_tier(tier.residents, tier.place().medium)

    async def start(self) -> Self:
        """Listen: on any free port at first, on the same one after a `stop`."""
        self._server = Server(self._serve, error_map=_failure)
        self._port = await self._server.start("127.0.0.1", self._port)
        if self.plugin is not None and self.events_endpoint is not None:
            self.plugin.bus.listen(self.events_endpoint)
        return self

    async def stop(self) -> None:
        """Cut every connection, and tell those that wait."""
        server = self._silenced()
        if server is not None:
            await server.close(grace_seconds=0)

    def kill(self) -> None:
        """End as by kill -9: nobody is answered, and nothing goes on."""
        server = self._silenced()
        if server is not None:
            server.abort()

    def _silenced(self) -> Server | None:
        server, self._server = self._server, None
        if self.plugin is not None:
            self.plugin.bus.close()
        return server

    async def restart(self) -> None:
        """Stop, forget everything that was in memory, start again."""
        await self.stop()
        self.cache.clear()
        self._backlogs = Backlogs()
        if self.plugin is not None:
            self.plugin.restart()
        if self.tiers is not None:
            self.tiers.restart()
        await self.start()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def _serve(self, request: Request, reply: Reply) -> None:
        guarded = request.path.startswith("/v1/")  # vLLM leaves /health and /tokenize open
        if guarded and request.header(b"authorization") != b"Bearer " + self.api_key.encode():
            raise Refused("Unauthorized")
        while self.behaviour.paused:  # noqa: ASYNC110 - tests set a plain flag, from any loop
            await asyncio.sleep(0.01)
        told = request.header(HEADER) if guarded and self.plugin is not None else None
        sender = self._backlogs.told(told, time.monotonic())
        if request.path in APIS:
            await self._complete(request, reply, sender)
            return
        if request.path == "/v1/scopekv/snapshot" and self.plugin is not None:
            outer = self.tiers.places(self.cache.block_size) if self.tiers is not None else None
            wanted = "blocks=false" not in request.query
            packed = self.plugin.snapshot(blocks=wanted, tiers=outer)
            reply.send(200, _PACKED, packed)
            return
        if request.path == "/metrics":
            reply.send(200, _TEXT, metrics_text(self.seen))
            return
        answer = await self._answer_plain(request)
        reply.send(200, [*_JSON, *self._others(sender)], msgspec.json.encode(answer))

    def _others(self, sender: bytes | None) -> Headers:
        """What other gateways have here, for one that said what it has; see `LoadExchange`."""
        if sender is None:
            return []
        return [(HEADER, self._backlogs.others(sender, time.monotonic()).written())]

    async def _answer_plain(self, request: Request) -> dict[str, Any]:
        body = _object(request.body)
        if request.path == "/health":
            return {}
        if request.path == "/v1/models":
            length = self.model.max_model_len
            names = (self.model.name, *self.adapters)
            cards = [{"id": name, "max_model_len": length} for name in names]
            return {"object": "list", "data": cards}
        if request.path == "/tokenize":
            chat = "messages" in body
            ids = self.model.chat_ids(body) if chat else self.model.text_ids(body["prompt"])
            return {"tokens": ids, "count": len(ids), "max_model_len": self.model.max_model_len}
        if request.path == COUNT_TOKENS:
            return {"input_tokens": len(self.model.chat_ids(as_chat(body)))}
        if self.plugin is None:
            raise NotFound("Not Found")
        own = OwnCalls(self.plugin, self.model, self.behaviour, self.seen, self.tiers)
        return await own.answer(request.path, body)

    async def _complete(self, request: Request, reply: Reply, sender: bytes | None) -> None:
        body = _object(request.body)
        self.seen.calls.append(Call(request.path, request.headers, body))
        self.seen.running += 1
        try:
            await asyncio.sleep(self.behaviour.head_seconds)
            while self.behaviour.held:  # noqa: ASYNC110 - a plain flag, as above
                await asyncio.sleep(0.01)
            if self.behaviour.dies_after_events == 0:
                raise asyncio.CancelledError  # the server cuts the connection
            if self.behaviour.refuses:
                self._refuse(body, reply)
                return
            answer = await self._prefill_in_turn(request.path, body)
            if body.get("stream"):
                await self._stream(answer, reply, [*_EVENTS, *self._others(sender)])
            else:
                headers = [*_JSON, *self._others(sender)]
                reply.send(200, headers, msgspec.json.encode(answer.whole()))
        except asyncio.CancelledError:
            self.seen.abandoned += 1
            raise
        finally:
            self.seen.running -= 1

    def _refuse(self, body: dict[str, Any], reply: Reply) -> None:
        if self.behaviour.refusal is not None:
            reply.send(self.behaviour.refuses, _TEXT, self.behaviour.refusal)
            return
        words = f"refused: {body}" if self.behaviour.echoes_body else "refused, as told"
        error = {"message": words, "type": "BadRequestError", "param": None, "code": 400}
        reply.send(self.behaviour.refuses, _JSON, msgspec.json.encode({"error": error}))

    async def _prefill_in_turn(self, path: str, body: dict[str, Any]) -> Answer:
        """One after the other, each as long as what it computes takes."""
        if not self.behaviour.token_seconds:
            return await self._prefill(path, body)
        async with self._turn:
            answer = await self._prefill(path, body)
            usage = answer.usage()
            computed = usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"]
            await asyncio.sleep(computed * self.behaviour.token_seconds)
            return answer

    async def _prefill(self, path: str, body: dict[str, Any]) -> Answer:
        return await Prefilling(self).answer(path, body)

    async def _stream(self, answer: Answer, reply: Reply, headers: Headers) -> None:
        await reply.start(200, headers)
        for number, event in enumerate(answer.events()):
            if number == self.behaviour.dies_after_events:
                await reply.write(event[: len(event) // 2])
                await asyncio.sleep(0.01)  # let the half event leave
                raise asyncio.CancelledError
            await reply.write(event)
            await asyncio.sleep(self.behaviour.event_seconds)
        await reply.finish()


def _namespace(model: SimulatedModel, block_size: int) -> Namespace:
    return Namespace(
        model=model.name,
        revision="simulated",
        tokenizer=hashlib.sha256(model.tokenizer_text.encode()).hexdigest(),
        dtype="float32",
        kv_dtype="auto",
        block_size=block_size,
        layout="simulated",
        hash_algorithm="sha256_cbor",
    )


def _object(data: bytes) -> dict[str, Any]:
    body = msgspec.json.decode(data or b"{}")
    if not isinstance(body, dict):
        raise Misuse("the body must be a JSON object")
    return body


def _failure(error: Exception) -> Failure:
    status = {NotFound: 404, Refused: 401, TooLarge: 400, Misuse: 400}
    for kind, code in status.items():
        if isinstance(error, kind):
            return Failure(code, str(error), "BadRequestError", str(code))
    return internal_failure(error)
