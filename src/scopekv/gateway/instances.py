"""The engines behind a gateway: what each is, whether its plugin answered, how busy it is."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec

from scopekv.core.blocks import FORMAT_VERSION, Fingerprint
from scopekv.core.tickets import AudienceId, KeyId
from scopekv.errors import Misuse, NotFound, ScopeKVError, Unavailable, UnknownModel
from scopekv.gateway.http.client import ClientPool
from scopekv.gateway.http.messages import Headers
from scopekv.gateway.model_text import Texts, model_text

POLL_SECONDS = 2.0
LOOK_SECONDS_MAX = 15.0  # a first status waits for the step that the engine is in
ANSWER_BYTES_MAX = 64 << 20
log = logging.getLogger("scopekv.instances")


class Isolation(StrEnum):
    """How an instance keeps callers apart."""

    SCOPED = "scoped"  # the plugin answered: tickets, shared segments
    WHOLE_PROMPT = "whole_prompt"  # no plugin: an opaque salt isolates each caller's prompts
    NONE = "unreachable"


@dataclass(frozen=True, slots=True, repr=False)
class InstanceAddress:
    """Where an engine is. `api_key`: what it was started with (`--api-key`), or empty."""

    name: str
    url: str
    api_key: str = ""


@dataclass(slots=True, repr=False)
class Instance:
    """One engine as last seen. Mutable; owned by the fleet's task and the event loop."""

    address: InstanceAddress
    pool: ClientPool
    control: ClientPool  # for our own questions, so that callers cannot use it up
    isolation: Isolation = Isolation.NONE
    reason: str = "not asked yet"
    models: tuple[str, ...] = ()
    base_model: str = ""  # the one that is no adapter
    fingerprint: Fingerprint | None = None
    epoch: str = ""  # new at every start of the engine
    block_size: int = 0
    max_model_len: int = 0
    texts: Texts | None = None
    in_flight: int = 0
    status: dict[str, Any] = field(default_factory=dict)

    @property
    def up(self) -> bool:
        return self.isolation is not Isolation.NONE

    def headers(self) -> Headers:
        key = self.address.api_key
        own = [(b"content-type", b"application/json")]
        return [*own, (b"authorization", b"Bearer " + key.encode("ascii"))] if key else own

    async def ask(self, method: str, path: str, body: object = None, *, seconds: float = 10) -> Any:
        """Call the engine's own API. Raises `Unavailable`, `NotFound` (404) or `Misuse` (4xx)."""
        data = b"" if body is None else msgspec.json.encode(body)
        answer = await self.control.request(
            method, path, self.headers(), data, timeout_seconds=seconds
        )
        async with answer:
            content = await answer.read(ANSWER_BYTES_MAX)
        if answer.status == 404:
            raise NotFound(f"the engine has no {path}")
        if 400 <= answer.status < 500:
            raise Misuse(f"the engine refused {path} with {answer.status}")
        if answer.status != 200:
            raise Unavailable(f"the engine answered {path} with {answer.status}")
        try:
            return msgspec.json.decode(content)
        except msgspec.DecodeError as error:
            raise Unavailable(f"the engine's answer to {path} is not JSON") from error


class Fleet:
    """All instances of one group."""

    def __init__(
        self,
        addresses: Sequence[InstanceAddress],
        *,
        audience: AudienceId,
        key_id: KeyId,
    ) -> None:
        self.instances = [Instance(a, ClientPool(a.url), ClientPool(a.url)) for a in addresses]
        self._audience, self._key_id = audience, key_id
        self._tasks: list[asyncio.Task[None]] = []
        self._looking: set[asyncio.Task[None]] = set()
        # What an instance with the plugin owes before it gets requests; `Unavailable`: not yet.
        self.before_use: Callable[[Instance], Awaitable[None]] | None = None

    async def start(self) -> None:
        """Look at every instance once, then keep looking."""
        await asyncio.gather(*(self.look(instance) for instance in self.instances))
        self._tasks = [asyncio.create_task(self._watch(i)) for i in self.instances]

    async def stop(self) -> None:
        tasks = [*self._tasks, *self._looking]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for instance in self.instances:
            await instance.pool.close()
            await instance.control.close()

    def models(self) -> list[str]:
        """The names that clients may ask for, in the order of the instances."""
        return list(dict.fromkeys(m for i in self.instances if i.up for m in i.models))

    def choose(self, model: str, tried: Sequence[Instance] = ()) -> Instance:
        """Return the least loaded instance that serves `model` and was not tried yet.

        Raises `NotFound` for a model that no instance has, `Unavailable` when none is up.
        """
        serving = [i for i in self.instances if i.up and model in i.models]
        left = [instance for instance in serving if instance not in tried]
        if left:
            return min(left, key=lambda i: (i.isolation is not Isolation.SCOPED, i.in_flight))
        if serving or not any(instance.up for instance in self.instances):
            raise Unavailable("no engine is ready")
        known = ", ".join(self.models())
        raise UnknownModel(f"the model {model[:120]!r} does not exist here; there is: {known}")

    async def look(self, instance: Instance) -> None:
        """Ask an instance what it is now. Never raises for what it answers."""
        try:
            listed = await instance.ask("GET", "/v1/models", seconds=LOOK_SECONDS_MAX)
            instance.models = tuple(model["id"] for model in listed["data"])
            await self._look_at_plugin(instance)
        except NotFound:
            self._see(instance, Isolation.WHOLE_PROMPT, "the ScopeKV plugin did not answer")
        except ScopeKVError as error:
            self.lost(instance, str(error))
        except (LookupError, TypeError, ValueError):
            self.lost(instance, "it does not answer as vLLM does")

    def suspect(self, instance: Instance) -> None:
        """Look at an instance now: it broke a connection off."""
        if len(self._looking) < len(self.instances):
            task = asyncio.create_task(self.look(instance))
            self._looking.add(task)
            task.add_done_callback(self._looking.discard)

    def lost(self, instance: Instance, reason: str) -> None:
        """Send nothing more to an instance until it answers again."""
        instance.epoch = ""
        self._see(instance, Isolation.NONE, reason)

    async def _look_at_plugin(self, instance: Instance) -> None:
        known = instance.isolation is Isolation.SCOPED
        path = "/v1/scopekv/status" if known else "/v1/scopekv/status?live=true"
        status = await instance.ask("GET", path, seconds=LOOK_SECONDS_MAX)
        instance.status = status
        problem = self._problem(status)
        if problem:
            self._see(instance, Isolation.WHOLE_PROMPT, problem)
            return
        if status["instance"] != instance.epoch:
            template = await instance.ask("GET", "/v1/scopekv/template", seconds=60)
            instance.base_model = str(template["models"][0])
            instance.texts, note = await model_text(template, instance.ask)
            instance.block_size = int(status["block_size"])
            instance.max_model_len = int(status["max_model_len"])
            instance.fingerprint = Fingerprint(bytes.fromhex(status["fingerprint"]))
            if self.before_use is not None:
                await self.before_use(instance)
            instance.epoch = str(status["instance"])
            self._see(instance, Isolation.SCOPED, note)

    def _problem(self, status: dict[str, Any]) -> str:
        """Why tickets must not be sent to this engine, or nothing."""
        if status["self_check"] != "ok":
            return f"the plugin's self-check failed: {status['self_check']}"
        if status["format"] != FORMAT_VERSION:
            return f"the plugin speaks format {status['format']}, not {FORMAT_VERSION}"
        if status["audience"] != self._audience.hex():
            return "the engine is of another SCOPEKV_INSTANCE_GROUP"
        if self._key_id.hex() not in status["keys"]:
            return "the engine's SCOPEKV_TICKET_KEYS does not hold this gateway's key"
        return ""

    def _see(self, instance: Instance, isolation: Isolation, reason: str) -> None:
        if isolation is not instance.isolation:
            log.log(
                logging.INFO if isolation is Isolation.SCOPED else logging.WARNING,
                "instance %s: %s (%s)",
                instance.address.name,
                isolation,
                reason,
            )
        if isolation is not Isolation.SCOPED:
            instance.epoch, instance.texts = "", None
        instance.isolation, instance.reason = isolation, reason

    async def _watch(self, instance: Instance) -> None:
        while True:
            await asyncio.sleep(POLL_SECONDS)
            try:
                await self.look(instance)
            except Exception as error:  # noqa: BLE001 - the watch must outlive what it meets
                self.lost(instance, f"unexpected {type(error).__name__}")
