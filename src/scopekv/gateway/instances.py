"""One engine behind a gateway: what it is, how busy it is, and how it is asked."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec

from scopekv.core.backlogs import HEADER, read_backlog
from scopekv.core.blocks import Fingerprint
from scopekv.core.circuit import Circuit
from scopekv.core.reservations import InstanceLoad, Reservation
from scopekv.errors import Misuse, NotFound, Unavailable
from scopekv.gateway.addresses import server_root
from scopekv.gateway.http.answer import UpstreamResponse
from scopekv.gateway.http.client import ClientPool
from scopekv.gateway.http.messages import Headers
from scopekv.gateway.model_text import Texts

ANSWER_BYTES_MAX = 64 << 20


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

    def __post_init__(self) -> None:
        object.__setattr__(self, "url", server_root(self.url))


@dataclass(slots=True, repr=False, eq=False)
class Instance:
    """One engine as last seen. Mutable; owned by the fleet's task and the event loop."""

    address: InstanceAddress
    pool: ClientPool
    control: ClientPool  # for our own questions, so that callers cannot use it up
    load: InstanceLoad = field(default_factory=InstanceLoad)
    sender: bytes = field(default_factory=lambda: secrets.token_hex(8).encode())  # us, to it
    circuit: Circuit = field(default_factory=Circuit)
    draining: bool = False  # by an administrator: what is under way ends, nothing new comes
    removed: bool = False  # from the configuration: the same, then it is closed
    asked_at: float | None = None  # loop time since when it owes an answer to a look
    text_id: bytes = b""  # equal where instances turn requests into equal tokens
    isolation: Isolation = Isolation.NONE
    reason: str = "not asked yet"
    models: tuple[str, ...] = ()
    base_model: str = ""  # the one that is no adapter
    fingerprint: Fingerprint | None = None
    epoch: str = ""  # new at every start of the engine; empty while it is not up
    lived: str = ""  # the last epoch that was seen
    block_size: int = 0
    max_model_len: int = 0
    texts: Texts | None = None
    status: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def at(cls, address: InstanceAddress) -> Instance:
        """An instance that was not looked at yet. Raises `ConfigError` for a URL that is none."""
        return cls(address, ClientPool(address.url), ClientPool(address.url))

    @property
    def up(self) -> bool:
        return self.isolation is not Isolation.NONE

    @property
    def takes_requests(self) -> bool:
        return not (self.isolation is Isolation.NONE or self.draining or self.removed)

    @property
    def in_flight(self) -> int:
        """Requests of this gateway that it was sent and has not finished."""
        return self.load.in_flight

    async def close(self) -> None:
        await self.pool.close()
        await self.control.close()

    def headers(self) -> Headers:
        key = self.address.api_key
        own = [(b"content-type", b"application/json")]
        if key:
            own.append((b"authorization", b"Bearer " + key.encode("ascii")))
        if self.isolation is Isolation.SCOPED:
            load = self.load.own(asyncio.get_running_loop().time())
            own.append((HEADER, b"%b %b" % (self.sender, load.written())))
        return own

    def hear(self, answer: UpstreamResponse, one: Reservation | None = None) -> None:
        """Note what other gateways have there, if an answer (to `one`) says so."""
        others = read_backlog(answer.header(HEADER))
        self.load.heard(others, asyncio.get_running_loop().time(), one)

    async def ask(self, method: str, path: str, body: object = None, *, seconds: float = 10) -> Any:
        """Call the engine's own API. Raises `Unavailable`, `NotFound` (404) or `Misuse` (4xx)."""
        data = b"" if body is None else msgspec.json.encode(body)
        answer = await self.control.request(
            method, path, self.headers(), data, timeout_seconds=seconds
        )
        async with answer:
            self.hear(answer)
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
