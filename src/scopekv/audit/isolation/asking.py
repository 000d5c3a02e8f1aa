"""One audit at work: who asks what, what the answer says, and which engine gave it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from scopekv.audit.endpoint import CHAT, Endpoint
from scopekv.audit.isolation.cells import Cell, Outcome, worth_another
from scopekv.audit.isolation.engines import Engines
from scopekv.audit.isolation.matrix import GROUP, Caller, Kind
from scopekv.audit.isolation.target import IsolationSettings, IsolationTarget, Place, Seat
from scopekv.audit.isolation.texts import Prompt, Texts
from scopekv.errors import Misuse, Unavailable
from scopekv.gateway.http import Headers

T = TypeVar("T")
FAILURES_MAX = 30


@dataclass(frozen=True, slots=True)
class Answer:
    """`cached`: tokens that came from the cache, 0 where the usage does not say. `engines`: those
    that looked something up meanwhile, if that can be known."""

    ok: bool
    code: str
    cached: int
    input_tokens: int
    ttft_seconds: float
    engines: frozenset[str] = frozenset()

    def outcome(self, beyond: int) -> Outcome:
        """What it says of text that stands behind `beyond` tokens which anybody shares."""
        if not self.ok:
            return Outcome.FAILED
        return Outcome.HIT if self.cached > beyond else Outcome.MISS


@dataclass(slots=True, repr=False)
class Asking:
    """Mutable, for one audit: keys may be replaced, texts are used up, times are noted."""

    target: IsolationTarget
    settings: IsolationSettings
    endpoint: Endpoint
    engines: Engines
    texts: Texts
    keys: dict[Seat, str]
    endpoints: tuple[str, ...] = (CHAT,)  # that are served, the usual ones first
    requests: int = 0
    beyond: dict[tuple[str, str], int] = field(default_factory=dict)  # (endpoint, model) -> tokens
    times: dict[str, list[float]] = field(default_factory=dict)  # by outcome, seconds to answer
    _failures: int = 0
    _documents: int = 0
    _turn: int = 0

    @property
    def many(self) -> bool:
        """Whether it matters which engine answers, and nobody decides it."""
        return len(self.engines.known) > 1 and not self.engines.steers

    def cell(
        self,
        answer: Answer,
        *,
        group: str,
        owner: Caller,
        caller: object,
        allowed: bool,
        proved: bool,
        model: str = "",
        beyond: int | None = None,
        place: Place = Place.ANY,
    ) -> Cell:
        """One try as its answer tells it, in a chat; the model and its shared prefix by default."""
        model = model or self.target.model
        tokens = self.beyond[CHAT, model] if beyond is None else beyond
        return Cell(
            group=group,
            place=place.value,
            endpoint=CHAT,
            model=model,
            owner=str(owner),
            caller=str(caller),
            allowed=allowed,
            outcome=answer.outcome(tokens),
            cached=max(0, answer.cached - tokens),
            proved=proved,
            error=answer.code,
        )

    async def next_engine(self) -> None:
        """What is asked from now on goes to another engine than before, where that is decided."""
        self._turn += 1
        await self.engines.only(self._turn)

    def again(self, cells: Collection[Cell], tries: int) -> bool:
        """Whether these cells are worth another try."""
        engines = len(self.engines.known)
        return worth_another(cells, tries, tries_max=self.settings.rounds_max, engines=engines)

    async def ask(
        self,
        caller: Caller,
        prompt: Prompt,
        *,
        fields: Mapping[str, Any] | None = None,
        headers: Headers | None = None,
        watched: bool = False,
    ) -> Answer:
        """Send a prompt. Raises `Unavailable` after many failures without an answer between.

        `fields` and `headers` are what the caller sets besides. `watched`: see which engine it
        reaches. A chat names its end user in the body, a completion in a header.
        """
        body = prompt.body()
        own: Headers = list(headers or [])
        if caller.end_user and prompt.endpoint == CHAT:
            body["user"] = caller.end_user
        elif caller.end_user:
            own.append((b"x-scopekv-user", caller.end_user.encode()))
        if caller.session:
            own.append((b"x-scopekv-session", caller.session.encode()))
        before = await self.engines.queried() if watched else {}
        self.requests += 1
        try:
            reply = await self.endpoint.call(
                "POST",
                prompt.endpoint,
                body | dict(fields or {}),
                key=self.keys[caller.seat],
                headers=own,
            )
        except Unavailable as error:
            self._failed(str(error))
            return Answer(False, "unreachable", 0, 0, 0.0)
        if reply.ok:
            self._failures = 0
        else:
            self._failed(f"{reply.status} {reply.code}")
        after = await self.engines.queried() if watched else {}
        return Answer(
            reply.ok,
            "" if reply.ok else f"{reply.status} {reply.code}",
            reply.cached_tokens or 0,
            reply.input_tokens or 0,
            reply.ttft_seconds,
            frozenset(name for name, now in after.items() if now[0] > before[name][0]),
        )

    def _failed(self, words: str) -> None:
        self._failures += 1
        if self._failures >= FAILURES_MAX:
            raise Unavailable(
                f"{self.target.url}: {FAILURES_MAX} requests in a row failed, the last with "
                f"{words[:200]}. Is the deployment up, and are the keys right?"
            )

    async def act(self, call: Callable[[], T]) -> T:
        """Do an administrator's act, which blocks. Cancelled, it ends the act first: what is
        removed afterwards must not be made meanwhile."""
        acting = asyncio.ensure_future(asyncio.to_thread(call))
        try:
            return await asyncio.shield(acting)
        except asyncio.CancelledError:
            await asyncio.wait([acting])
            raise

    async def document(self, audience: str, text: str) -> str:
        """Publish a text for an audience; return its id."""
        if self.target.registrar is None:
            raise Misuse("without a registrar nothing can be published")
        publish = self.target.registrar.publish
        self._documents += 1
        number = self._documents
        return await self.act(lambda: publish(f"audit-{number}", audience, text))

    async def prompt(self, kind: Kind, owner: Caller, endpoint: str, model: str) -> Prompt:
        """A prompt that nobody has sent before, with an owner's text of this kind."""
        head, tail = self.texts.text(), self.texts.tail()
        if kind.document:
            await self.document(audience(kind, owner), head)
        if kind is Kind.PUBLIC_TAIL:
            tail = self.texts.text()
        return Prompt(endpoint, model, head, tail, system=kind is Kind.ORG_TEXT)

    async def alone(self, place: Place) -> None:
        await self.engines.alone(place)

    def note_time(self, name: str, answer: Answer) -> None:
        """Keep how long an answer took, by what it turned out to be."""
        if answer.ok:
            self.times.setdefault(name, []).append(answer.ttft_seconds)


def audience(kind: Kind, owner: Caller) -> str:
    """The written audience of an owner's document of this kind."""
    org = owner.member.org
    return {
        Kind.ORG_DOCUMENT: f"org:{org}",
        Kind.GROUP_DOCUMENT: f"group:{org}/{GROUP}",
        Kind.USER_DOCUMENT: f"user:{org}/{owner.member.name}",
    }.get(kind, "public")
