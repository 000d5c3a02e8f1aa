"""Public documents are computed and pinned in every instance before anybody asks.

So a hit on them says nothing about anyone (L10). A document is warmed in each place where a
request's first tokens can be its own: the system message, the first user message, a completion.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from scopekv.core.encoding import encode
from scopekv.core.policy import RoleRules
from scopekv.core.scopes import AudienceKind, Narrowing, Principal
from scopekv.errors import ScopeKVError, Unavailable
from scopekv.gateway.access import Access
from scopekv.gateway.apis.chat import COMPLETIONS_API
from scopekv.gateway.bodies import engine_body
from scopekv.gateway.documents import DocumentIndex
from scopekv.gateway.fleet import Fleet
from scopekv.gateway.instances import Instance, Isolation
from scopekv.gateway.permits import Issuer
from scopekv.gateway.prompts import Caller, Prompt, chat_prompt, completion_prompt
from scopekv.gateway.routing import outcome_of
from scopekv.gateway.scope_notes import ScopeNotes
from scopekv.gateway.usage import read_usage
from scopekv.ports import PublishedDocument

LOOK_SECONDS = 1.0
WARM_SECONDS_MAX = 600.0
RETRY_SECONDS_FIRST = 5.0
RETRY_SECONDS_MAX = 300.0
_NOBODY = Principal("scopekv", "warmer", "scopekv", "warmer")
log = logging.getLogger("scopekv.warm")


@dataclass(frozen=True, slots=True)
class _Place:
    label: str  # opaque: names of documents stay out of engines
    prompt: Prompt
    epochs: tuple[int, ...]


class Warmer:
    """Keeps every scoped instance's pinned documents equal to the registry's public ones."""

    def __init__(self, access: Access, issuer: Issuer, notes: ScopeNotes, fleet: Fleet) -> None:
        self._access, self._issuer, self._fleet = access, issuer, fleet
        self._notes = notes
        # Instance epoch -> label -> whether every block is held.
        self._held: dict[str, dict[str, bool]] = {}
        self._task: asyncio.Task[None] | None = None
        self._working: list[asyncio.Task[None]] = []
        self._tried: dict[tuple[str, str], tuple[int, float]] = {}  # -> (times, not again before)
        self._known: dict[str, tuple[object, dict[str, _Place]]] = {}

    async def settle(self) -> None:
        """Bring every instance that is up to date, and return when that is done."""
        await self._access.refresh()
        self._look()
        await asyncio.gather(*self._working)

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        tasks = [*self._working, *([self._task] if self._task else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def progress(self, instance: Instance) -> dict[str, int]:
        """How many places are pinned whole on an instance now."""
        return {"pinned": sum(self._held.get(instance.epoch, {}).values())}

    def unpinned(self, instance: Instance, labels: Sequence[str]) -> None:
        """Pin these anew at the next look: their blocks were kept as long as they may be."""
        for label in labels:
            self._held.get(instance.epoch, {}).pop(label, None)
            self._tried.pop((instance.epoch, label), None)

    async def _run(self) -> None:
        while True:
            try:
                await self._access.refresh()
                self._look()
            except Exception as error:  # noqa: BLE001 - the loop must outlive what it meets
                log.warning("cannot look at public documents: %s", type(error).__name__)
            await asyncio.sleep(LOOK_SECONDS)

    def _look(self) -> None:
        """Set every instance that is up to work, unless it is at work still."""
        live = [i for i in self._fleet.instances if i.isolation is Isolation.SCOPED and i.texts]
        epochs = {instance.epoch for instance in live}
        self._held = {epoch: self._held.get(epoch, {}) for epoch in epochs}
        self._tried = {key: tried for key, tried in self._tried.items() if key[0] in epochs}
        self._known = {epoch: known for epoch, known in self._known.items() if epoch in epochs}
        working = {task.get_name() for task in self._working if not task.done()}
        self._working = [task for task in self._working if not task.done()]
        for instance in live:
            if instance.epoch not in working:
                work = self._settle(instance, instance.epoch, self._held[instance.epoch])
                self._working.append(asyncio.create_task(work, name=instance.epoch))

    async def _settle(self, instance: Instance, epoch: str, held: dict[str, bool]) -> None:
        """Bring one instance up to date. Never raises for an engine's or the registry's trouble."""
        try:
            await self._bring_up(instance, epoch, held)
        except Exception as error:  # noqa: BLE001 - tried again at the next look
            log.warning("instance %s: %s", instance.address.name, type(error).__name__)

    async def _bring_up(self, instance: Instance, epoch: str, held: dict[str, bool]) -> None:
        wanted = await self._wanted(instance, epoch)
        for label in held.keys() - wanted.keys():
            if await self._tell(instance, "/v1/scopekv/unpin", {"label": label}) is not None:
                del held[label]
        for label, place in wanted.items():
            times, not_before = self._tried.get((epoch, label), (0, 0.0))
            now = asyncio.get_running_loop().time()
            if held.get(label) or now < not_before or instance.epoch != epoch:
                continue
            wait = min(RETRY_SECONDS_MAX, RETRY_SECONDS_FIRST * (2**times - 1))
            self._tried[epoch, label] = (times + 1, now + wait)
            pinned = await self._warm(instance, place)
            if pinned is not None:
                held[label] = not pinned.get("missing")

    async def _wanted(self, instance: Instance, epoch: str) -> dict[str, _Place]:
        """The places by label, made anew when documents, epochs or the hour (templates) change."""
        key = (self._access.versions, time.strftime("%Y-%m-%d %H"))
        known = self._known.get(epoch)
        if known is None or known[0] != key:
            places = {place.label: place async for place in self._places(instance)}
            known = self._known[epoch] = (key, places)
        return known[1]

    async def _places(self, instance: Instance) -> Any:
        for document in self._access.documents.documents:
            if document.document.audience.kind is not AudienceKind.PUBLIC:
                continue
            for index, prompt in enumerate(_prompts(document, instance)):
                closed = [s for s in prompt.segments if s.end is not None]
                if not closed or (closed[-1].end or 0) < instance.block_size:
                    continue
                epochs = tuple([await self._access.epoch(s.scope) for s in prompt.segments])
                yield _Place(_label(document, index, epochs, prompt), prompt, epochs)
                await asyncio.sleep(0)  # callers first

    async def _warm(self, instance: Instance, place: _Place) -> dict[str, Any] | None:
        """Compute the document's blocks by a request of one token, then pin them."""
        tokens = place.prompt.tokens
        if tokens is None or len(tokens) >= instance.max_model_len:
            log.warning("a public document is longer than the model's context: not pinned")
            return None
        if not await self._notes.note(place.prompt.segments, place.epochs):
            return None  # an epoch is over: the next look finds the new one
        body = engine_body(
            {"model": instance.base_model, "prompt": "", "max_tokens": 1},
            COMPLETIONS_API,
            salt=self._issuer.salt(place.prompt.segments, place.epochs),
            ticket=self._ticket(instance, place),
            tokens=tokens,
        )
        if not await self._compute(instance, body, len(tokens)):
            return None
        pin = {
            "label": place.label,
            "ticket": self._ticket(instance, place),
            "token_ids": msgspec.Raw(b"[%b]" % tokens.json),
        }
        pinned = await self._tell(instance, "/v1/scopekv/pin", pin)
        if pinned is not None and pinned.get("missing"):
            log.warning(
                "instance %s: %d blocks of a public document are not pinned (memory is full, or "
                "SCOPEKV_PINNED_SHARE_MAX is reached)",
                instance.address.name,
                pinned["missing"],
            )
        return pinned

    async def _compute(self, instance: Instance, body: bytes, tokens: int) -> bool:
        """One request, in the instance's load as any other; how long it takes teaches its speed."""
        load, loop = instance.load, asyncio.get_running_loop()
        one = load.place(
            loop.time(),
            total_tokens=tokens,
            cached_tokens=0,
            prefill_seconds=load.curve().seconds(0, tokens),
            streams=False,
        )
        outcome = None
        try:
            answer = await self._tell(instance, "/v1/completions", msgspec.Raw(body))
            if answer is not None:
                outcome = outcome_of(read_usage(msgspec.json.encode(answer)))
        finally:
            load.done(one, loop.time(), outcome)
        return answer is not None

    async def _tell(self, instance: Instance, path: str, body: object) -> dict[str, Any] | None:
        """Call the engine; None where it could not."""
        try:
            answer = await instance.ask("POST", path, body, seconds=WARM_SECONDS_MAX)
        except ScopeKVError as error:
            log.warning("instance %s: %s", instance.address.name, error)
            return None
        return answer if isinstance(answer, dict) else None

    def _ticket(self, instance: Instance, place: _Place) -> str:
        if instance.fingerprint is None:
            raise Unavailable("the instance has no namespace yet")
        return self._issuer.ticket(
            _NOBODY,
            place.prompt.segments,
            place.epochs,
            place.prompt.tokens,
            namespace=instance.fingerprint,
            uses=1,
        )


def _prompts(document: PublishedDocument, instance: Instance) -> Iterator[Prompt]:
    """The document where requests have it, followed by a text that no request shares."""
    if instance.texts is None:
        return
    caller = Caller(_NOBODY, Narrowing(), RoleRules(), DocumentIndex([document]))
    question = {"role": "user", "content": "."}
    chats: tuple[list[dict[str, str]], ...] = (
        [{"role": "system", "content": document.text}, question],
        [{"role": "user", "content": document.text}],
    )
    for messages in chats:
        yield chat_prompt({"messages": messages}, caller, instance.texts.here)
    yield completion_prompt(document.text, caller, instance.texts.here)


def _label(document: PublishedDocument, place: int, epochs: tuple[int, ...], prompt: Prompt) -> str:
    """Names the blocks: a template that holds the date makes others each day."""
    tokens = prompt.tokens.packed if prompt.tokens is not None else b""
    message = encode("scopekv/warm/1", document.document.uid, place, epochs[0], tokens)
    return hashlib.sha256(message).hexdigest()[:32]
