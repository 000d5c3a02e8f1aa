"""Whether a document that was withdrawn still shows in time. Needs a key with admin power."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from scopekv.audit.endpoint import Endpoint
from scopekv.audit.results import Severity
from scopekv.audit.timing.asking import Asker, Lost, Party
from scopekv.audit.timing.experiments import Arm, Sample, asked_for
from scopekv.errors import ConfigError, Unavailable

T = TypeVar("T")
_DOCUMENTS, _ORGS = "/admin/v1/documents", "/admin/v1/orgs"


@dataclass(slots=True, repr=False)
class Publisher:
    """Publishes random texts, and withdraws every one of them at the end."""

    endpoint: Endpoint
    key: str
    run: str
    empty_org: bool = False  # whether there is an organisation in which nobody is
    _made: int = 0
    _standing: set[str] = field(default_factory=set)

    @property
    def _org(self) -> str:
        return f"audit-timing-{self.run}"

    async def make_empty_org(self) -> None:
        """Sets `empty_org` where this key may make an organisation: operators may."""
        await _to_its_end(self._make_empty_org())

    async def _make_empty_org(self) -> None:
        reply = await self.endpoint.call("POST", _ORGS, {"name": self._org}, key=self.key)
        self.empty_org = reply.status == 201

    async def publish_to_nobody(self, text: str) -> str:
        """`publish`, but only members of the empty organisation could read it."""
        return await self.publish(text, f"org:{self._org}")

    async def publish(self, text: str, audience: str = "public") -> str:
        """Return the document's id. Raises `ConfigError` where this key may not publish, and
        `Lost`, as `withdraw` does, where no answer came."""
        return await _to_its_end(self._publish(text, audience))

    async def _publish(self, text: str, audience: str) -> str:
        name = f"audit-timing-{self.run}-{self._made}"
        body = {"name": name, "audience": audience, "text": text}
        answer = await self._call(_DOCUMENTS, body, 201)
        self._made += 1
        document = str(answer["id"])
        self._standing.add(document)
        return document

    async def withdraw(self, document: str) -> None:
        """Final. When it returns, the next request no longer reads what was kept of it."""
        await self._call(f"{_DOCUMENTS}/{document}/withdraw", None, 200)
        self._standing.discard(document)

    async def withdraw_all(self) -> int:
        """Withdraw what this run published and still stands; return how many could not be."""
        for document in tuple(self._standing):
            with contextlib.suppress(Unavailable, ConfigError):
                await self.withdraw(document)
        if self.empty_org:
            path = f"{_ORGS}/{self._org}"
            with contextlib.suppress(Unavailable):
                await self.endpoint.call("DELETE", path, None, key=self.key)
        return len(self._standing)

    async def _call(self, path: str, body: Mapping[str, Any] | None, wanted: int) -> Any:
        try:
            reply = await self.endpoint.call("POST", path, body, key=self.key)
        except Unavailable as error:
            raise Lost("the administration did not answer") from error
        if reply.status != wanted:
            raise ConfigError(
                f"{self.endpoint.url}{path} answered the admin key {reply.status} {reply.code}: "
                "it must belong to an account that may publish for everybody"
            )
        return reply.body


async def _to_its_end(act: Coroutine[Any, Any, T]) -> T:
    """Carried out also when cancelled meanwhile: what was made must be known, to be removed."""
    task = asyncio.ensure_future(act)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        task.cancelled() or task.exception()  # looked at: nobody else will
        raise


@dataclass(frozen=True, slots=True, repr=False)
class Withdrawn:
    """A public document that the victim used, before (CONTROL) and after (HIT) its withdrawal.

    In every arm a document is published, used by the victim and withdrawn; MISS then asks for a
    text that was never published.
    """

    asker: Asker
    victim: Party
    attacker: Party
    publisher: Publisher
    name: str = "after_delete"
    title: str = "A withdrawn document is computed anew by whoever sends its text"
    main: bool = False
    usage_decides: bool = True
    silent: str = ""
    severity: Severity = Severity.HIGH

    async def sample(self, arm: Arm) -> Sample:
        letters = self.asker.letters
        text = letters.fresh() + "\n"
        document = await self.publisher.publish(text)
        await self.asker.ask(self.victim, text + letters.fresh())
        if arm is not Arm.CONTROL:
            await self.publisher.withdraw(document)
        sample = await asked_for(text, arm, self.asker, self.attacker)
        if arm is Arm.CONTROL:
            await self.publisher.withdraw(document)
        return sample
