"""An engine that answers at once: what a gateway asks of vLLM with our plugin, without a model.

    python benchmarks/_stand_in.py MODEL_FOLDER TICKET_KEYS.json|- [EVENTS]

Prints its port. `-`: vLLM without our plugin. EVENTS: of a stream, with a token each (1).
It neither reads prompts nor tokenises them, so that a direct call costs the least
a call can cost and everything a gateway adds shows.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import msgspec
import uvloop

from scopekv.adapters.ed25519 import KeyFile
from scopekv.core.blocks import FORMAT_VERSION
from scopekv.core.tickets import audience_id
from scopekv.gateway.http import Reply, Request, Server
from scopekv.simulate.model import SimulatedModel

POSITIONS = 131_072
JSON = [(b"content-type", b"application/json")]
EVENTS = [(b"content-type", b"text/event-stream; charset=utf-8")]
USAGE = {"prompt_tokens": 10_000, "completion_tokens": 1, "total_tokens": 10_001}
DETAILS = {"prompt_tokens_details": {"cached_tokens": 9_472}}


class StandIn:
    """The answers, made once."""

    def __init__(self, model: SimulatedModel, keys: KeyFile | None, events: int = 1) -> None:
        self._model = model
        self._plugin = keys is not None
        self._status = {
            "self_check": "ok",
            "format": FORMAT_VERSION,
            "audience": audience_id("default").hex(),
            "keys": [key.hex() for key in keys or ()],
            "instance": "stand-in",
            "fingerprint": bytes(32).hex(),
            "block_size": 32,
            "max_model_len": POSITIONS,
        }
        token, self._rest = _events(model.name)
        self._tokens = (token,) * events
        self._whole = _whole(model.name)

    async def serve(self, request: Request, reply: Reply) -> None:
        """Answer one request."""
        if request.path in ("/v1/completions", "/v1/chat/completions"):
            if b'"stream":true' not in request.body and b'"stream": true' not in request.body:
                reply.send(200, JSON, self._whole)
                return
            await reply.start(200, EVENTS)
            for event in self._tokens:
                await reply.write(event)
            await reply.write(self._rest)
            await reply.finish()
            return
        if request.path.startswith("/v1/scopekv") and not self._plugin:
            reply.send(404, JSON, b'{"detail":"Not Found"}')
            return
        if request.path.endswith("/render"):  # as vLLM 0.32 does without --enable-scale-out
            reply.send(403, JSON, b'{"error":{"message":"disabled","code":403}}')
            return
        reply.send(200, JSON, msgspec.json.encode(self._plain(request)))

    def _plain(self, request: Request) -> dict[str, Any]:
        if request.path == "/v1/models":
            return {"object": "list", "data": [{"id": self._model.name}]}
        if request.path == "/v1/scopekv/status":
            return self._status
        if request.path == "/v1/scopekv/template":
            return self._model.describe()
        if request.path == "/tokenize":
            return {"tokens": self._model.chat_ids(msgspec.json.decode(request.body))}
        return {"held": 0, "missing": 0}


def _events(model: str) -> tuple[bytes, bytes]:
    """A first event with a token; the usage and the end."""
    delta = {"index": 0, "delta": {"role": "assistant", "content": "Yes"}, "finish_reason": None}
    head = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": model}
    token = msgspec.json.encode({**head, "choices": [delta]})
    usage = msgspec.json.encode({**head, "choices": [], "usage": {**USAGE, **DETAILS}})
    return b"data: %b\n\n" % token, b"data: %b\n\ndata: [DONE]\n\n" % usage


def _whole(model: str) -> bytes:
    message = {"role": "assistant", "content": "Yes"}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    head = {"id": "x", "object": "chat.completion", "created": 1, "model": model}
    return msgspec.json.encode({**head, "choices": [choice], "usage": {**USAGE, **DETAILS}})


async def main(folder: Path, keys: str, events: int) -> None:
    key_file = None if keys == "-" else KeyFile(Path(keys))
    stand_in = StandIn(SimulatedModel.load(folder), key_file, events)
    server = Server(stand_in.serve)
    print(await server.start("127.0.0.1", 0), flush=True)
    try:
        await asyncio.Event().wait()
    finally:
        await server.close(grace_seconds=0)


if __name__ == "__main__":
    uvloop.run(main(Path(sys.argv[1]), sys.argv[2], int((*sys.argv[3:], "1")[0])))
