"""What an engine is and whether it works: asked of it each second or two."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from scopekv.core.blocks import FORMAT_VERSION, Fingerprint
from scopekv.core.tickets import AudienceId, KeyId
from scopekv.errors import NotFound, ScopeKVError, Unavailable
from scopekv.gateway.http.client import ClientPool, NotSent
from scopekv.gateway.instances import Instance
from scopekv.gateway.model_text import Built, built, model_text

LOOK_SECONDS_MAX = 15.0  # a first status waits for the step that the engine is in
GONE_SECONDS = 1.0
BUILT_MAX = 4


@dataclass(slots=True)
class Examiner:
    """Asks instances what they are. `before_use`: what one with the plugin owes before it gets
    requests; `Unavailable`: not yet.
    """

    audience: AudienceId
    key_id: KeyId
    before_use: Callable[[Instance], Awaitable[None]] | None = None
    _built: dict[bytes, Built] = field(default_factory=dict)

    async def health(self, instance: Instance) -> None:
        """Raise `Unavailable` unless the engine says that it works. One without the page does."""
        answer = await instance.control.request(
            "GET", "/health", instance.headers(), b"", timeout_seconds=LOOK_SECONDS_MAX
        )
        async with answer:
            if answer.status != 404 and answer.status >= 400:
                raise Unavailable(f"the engine answered /health with {answer.status}")
            await answer.read(1 << 16)

    async def models(self, instance: Instance) -> tuple[str, ...]:
        """The names that it serves. Raises `LookupError` and the like for another kind of answer.

        `NotFound` here is no missing plugin but no vLLM.
        """
        try:
            listed = await instance.ask("GET", "/v1/models", seconds=LOOK_SECONDS_MAX)
        except NotFound as error:
            raise Unavailable("the engine lists no models") from error
        return tuple(model["id"] for model in listed["data"])

    async def status(self, instance: Instance, *, live: bool) -> dict[str, Any]:
        """The plugin's status; `live`: not from memory. Raises `NotFound` without plugin."""
        path = "/v1/scopekv/status?live=true" if live else "/v1/scopekv/status"
        status: dict[str, Any] = await instance.ask("GET", path, seconds=LOOK_SECONDS_MAX)
        return status

    def problem(self, status: dict[str, Any]) -> str:
        """Why tickets must not be sent to this engine, or nothing."""
        if status["self_check"] != "ok":
            return f"the plugin's self-check failed: {status['self_check']}"
        if status["format"] != FORMAT_VERSION:
            return f"the plugin speaks format {status['format']}, not {FORMAT_VERSION}"
        if status["audience"] != self.audience.hex():
            return "the engine is of another SCOPEKV_INSTANCE_GROUP"
        if self.key_id.hex() not in status["keys"]:
            return "the engine's SCOPEKV_TICKET_KEYS does not hold this gateway's key"
        return ""

    async def read_in(self, instance: Instance, status: dict[str, Any]) -> str:
        """Take over what a newly started engine is; return a note for the operator.

        Instances of one model share one reading of its tokenizer; each is proven on its own.
        """
        template = await instance.ask("GET", "/v1/scopekv/template", seconds=60)
        instance.base_model = str(template["models"][0])
        name = hashlib.sha256(msgspec.json.encode(template)).digest()
        if name not in self._built and template["renderable"]:
            if len(self._built) >= BUILT_MAX:
                self._built.clear()
            self._built[name] = await built(template)
        instance.texts, note = await model_text(template, instance.ask, self._built.get(name))
        instance.text_id = name + note.encode()
        instance.block_size = int(status["block_size"])
        instance.max_model_len = int(status["max_model_len"])
        instance.fingerprint = Fingerprint(bytes.fromhex(status["fingerprint"]))
        if self.before_use is not None:
            await self.before_use(instance)
        return note

    async def gone(self, instance: Instance) -> bool:
        """Whether the engine refuses connections now, so that it can be running nothing."""
        pool = ClientPool(instance.address.url)
        try:
            async with asyncio.timeout(GONE_SECONDS):
                while True:
                    try:
                        async with await pool.request(
                            "GET", "/health", [], b"", timeout_seconds=GONE_SECONDS
                        ):
                            return False
                    except NotSent:
                        return True
                    except ScopeKVError:  # taken and dropped: it may be about to end
                        await asyncio.sleep(GONE_SECONDS / 20)
        except TimeoutError:
            return False  # it may be hanging, and go on
        finally:
            await pool.close()
