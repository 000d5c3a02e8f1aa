"""The router: which instance gets a request, and the books of what is under way there.

`core.routing` decides; this file gathers what it decides on: load and speed (`core.reservations`),
what is cached where (a `Locator`), what is on its way there (`core.prefixes`).
"""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Mapping, Sequence
from typing import Protocol

from scopekv.core.prefixes import (
    MARK_TOKENS,
    Mark,
    PrefixesInFlight,
    SentPrefixes,
    Stretch,
    marks,
)
from scopekv.core.reservations import Outcome, Reservation
from scopekv.core.routing import CROWD_FREE, CachedThere, Candidate, Choice, choose
from scopekv.core.segments import Segment
from scopekv.core.values import light_value
from scopekv.gateway.fleet import Fleet
from scopekv.gateway.http.answer import UpstreamResponse
from scopekv.gateway.instances import Instance, Isolation
from scopekv.gateway.metrics import Metrics
from scopekv.gateway.tokens import Tokens
from scopekv.gateway.usage import Usage

SILENCE_SECONDS = 0.5  # an engine answers a look within this, or a long step holds it up
_NOBODY: Mapping[str, int] = {}
_NOTHING = CachedThere(0)
BYTES_PER_TOKEN = 4  # of JSON, where the engine tokenises


@light_value(repr=False)
class Asked:
    """A request as the router sees it. `epochs`: of each segment's scope.

    `tokens` None: the engine renders, and `text` (JSON, the same at the start for prompts that
    begin alike) stands for them.
    """

    model: str
    segments: tuple[Segment, ...]
    epochs: tuple[int, ...]
    tokens: Tokens | None
    text: bytes = b""
    streams: bool = False

    @property
    def total_tokens(self) -> int:
        """At least 1; an estimate where the engine tokenises."""
        if self.tokens is not None:
            return max(1, len(self.tokens))
        return max(1, len(self.text) // BYTES_PER_TOKEN)


class Locator(Protocol):
    """Tells what instances have of a prompt. Called on the event loop: no waiting."""

    def locate(
        self, asked: Asked, marked: Sequence[Mark], instances: Sequence[Instance]
    ) -> Mapping[str, CachedThere | None]:
        """What each instance has, by its name; None for one whose view is unsure."""
        ...

    def sent(self, marked: Sequence[Mark], instance: Instance) -> None:
        """A prompt goes to an instance, which will have it."""
        ...

    def forget(self, name: str) -> None:
        """An instance lost what it had: it was restarted, or it left."""
        ...


class NullLocator:
    """What this gateway itself sent where of late: sessions stay where they were, without events.

    Bounded and scoped (`core.prefixes`). What an engine has evicted since is not known.
    """

    def __init__(self) -> None:
        self._memory = SentPrefixes()

    def locate(
        self, asked: Asked, marked: Sequence[Mark], instances: Sequence[Instance]
    ) -> Mapping[str, CachedThere | None]:
        del asked
        names = [instance.address.name for instance in instances]
        found: dict[str, CachedThere | None] = dict.fromkeys(names, _NOTHING)
        for name, tokens in self._memory.tokens(marked).items():
            if name in found:
                found[name] = CachedThere(tokens)
        return found

    def sent(self, marked: Sequence[Mark], instance: Instance) -> None:
        self._memory.sent(instance.address.name, marked)

    def forget(self, name: str) -> None:
        self._memory.forget(name)


class Route:
    """One request on its instance, counted from the choice on. End it with `close`, always."""

    __slots__ = (
        *("_in_flight", "_loop", "_marked", "_outcome", "_probe", "_reservation"),
        *("choice", "instance"),
    )

    def __init__(
        self,
        instance: Instance,
        choice: Choice,
        reservation: Reservation,
        in_flight: PrefixesInFlight,
        marked: Sequence[Mark],
        loop: asyncio.AbstractEventLoop,
        *,
        probe: bool,
    ) -> None:
        """`probe`: of an instance that failed others (`core.circuit`)."""
        self.instance, self.choice, self._probe = instance, choice, probe
        self._reservation, self._in_flight, self._marked = reservation, in_flight, marked
        self._loop = loop
        self._outcome: Outcome | None = None

    def hear(self, answer: UpstreamResponse) -> None:
        """The head of its answer is here, and tells what other gateways have there."""
        self.instance.hear(answer, self._reservation)

    def first_token(self) -> None:
        """The first bytes of the answer's body are here. Idempotent."""
        self.instance.load.first_token(self._reservation, self._loop.time())
        self.instance.circuit.worked()

    def answered(self, usage: Usage | None) -> None:
        """The answer came whole; what it says of itself teaches the instance's speed."""
        self.instance.circuit.worked()
        self._outcome = outcome_of(usage)

    def refused(self) -> None:
        """The instance answered that it will not: it works."""
        self.instance.circuit.worked()

    def failed(self) -> bool:
        """The instance failed it. True if it is left alone for a while now."""
        return self.instance.circuit.failed(self._loop.time())

    def close(self) -> None:
        """It ended, however. Idempotent."""
        if self._reservation.open:
            if self._probe:
                self.instance.circuit.probed()
            self._in_flight.ended(self.instance.address.name, self._marked)
            self.instance.load.done(self._reservation, self._loop.time(), self._outcome)


class Router:
    """Places requests on the instances of one fleet."""

    def __init__(
        self,
        fleet: Fleet,
        metrics: Metrics,
        in_flight_max: int,
        locator: Locator | None = None,
    ) -> None:
        self._fleet, self._metrics, self._in_flight_max = fleet, metrics, in_flight_max
        self._locator: Locator = locator or NullLocator()
        self._in_flight = PrefixesInFlight()
        self._key = secrets.token_bytes(32)
        self._dice = random.Random()  # noqa: S311 - breaks ties, guards nothing
        fleet.on_forgotten.append(self._locator.forget)

    def reader(self, model: str, tried: Sequence[Instance] = ()) -> Instance:
        """An instance by whose text a request for `model` is read. Raises as `Fleet.serving`."""
        return self._fleet.serving(model, tried)[0]

    def route(self, asked: Asked, tried: Sequence[Instance] = ()) -> Route:
        """Choose an instance and count the request there. Raises as `Fleet.serving`.

        Cost: O(instances) plus one pass over the prompt; with one instance, neither.
        """
        serving = self._fleet.serving(asked.model, tried)
        serving = [i for i in serving if i.load.in_flight < self._in_flight_max] or serving
        loop = asyncio.get_running_loop()
        now = loop.time()
        total, tie = asked.total_tokens, self._dice.random()
        marked = self._marks(asked, total) if len(self._fleet.instances) > 1 else ()
        candidates = self._candidates(asked, marked, serving, now)
        choice = choose(candidates, total, tie, retry=bool(tried))
        instance = next(i for i in serving if i.address.name == choice.name)
        probe = instance.circuit.begins(now)
        reservation = instance.load.place(
            now,
            total_tokens=total,
            cached_tokens=choice.cached_tokens,
            prefill_seconds=choice.prefill_seconds,
            streams=asked.streams,
        )
        self._in_flight.placed(choice.name, marked)
        self._locator.sent(marked, instance)
        self._metrics.routed(choice.reason)
        books = self._in_flight
        return Route(instance, choice, reservation, books, marked, loop, probe=probe)

    def _candidates(
        self, asked: Asked, marked: Sequence[Mark], serving: Sequence[Instance], now: float
    ) -> list[Candidate]:
        if len(serving) == 1:
            only = serving[0]
            return [_candidate(only, _NOTHING, 0, now)]
        located = self._locator.locate(asked, marked, serving)
        coming = self._in_flight.tokens(marked)
        hot_end, crowds = 0, _NOBODY
        if coming and sum([i.load.in_flight for i in serving]) >= CROWD_FREE:
            hot_end, crowds = self._in_flight.hot(marked, CROWD_FREE)
        found = []
        for instance in serving:
            name = instance.address.name
            there, soon = located.get(name), coming.get(name, 0)
            if there is not None and soon > there.tokens:
                there = there.with_coming(soon)  # it will be there when this one's turn comes
            crowd = crowds.get(name, 0)
            if (
                crowd
                and there is not None
                and there.tokens >= hot_end + max(MARK_TOKENS, hot_end // 8)
            ):
                crowd = 0
            found.append(_candidate(instance, there, crowd, now))
        return found

    def _marks(self, asked: Asked, total: int) -> tuple[Mark, ...]:
        if len(asked.segments) == 1 and total < MARK_TOKENS:
            return ()  # too short for a mark
        stretches = [
            Stretch(segment.end, (segment.scope.kind.value, *segment.scope.path), epoch)
            for segment, epoch in zip(asked.segments, asked.epochs, strict=True)
        ]
        if asked.tokens is not None:
            return marks(asked.tokens.packed, stretches, self._key)
        return marks(asked.text, stretches, self._key)


def _candidate(instance: Instance, there: CachedThere | None, crowd: int, now: float) -> Candidate:
    """A look that an engine has not answered yet says that it is busy: it counts as queue."""
    queue = instance.load.queue_seconds(now)
    if instance.asked_at is not None and now - instance.asked_at > SILENCE_SECONDS:
        queue = max(queue, now - instance.asked_at)
    return Candidate(
        instance.address.name,
        queue,
        instance.load.in_flight_of_all,
        instance.load.curve(),
        there,
        crowd,
    )


def outcome_of(usage: Usage | None) -> Outcome | None:
    """What an answer's usage teaches of its instance, if it says anything."""
    if usage is None or usage.prompt_tokens < 1:
        return None
    return Outcome(usage.prompt_tokens, usage.cached, usage.completion_tokens or 0)


def same_text(one: Instance, other: Instance) -> bool:
    """Whether a prompt that was read for one instance is right for the other."""
    return one is other or (
        one.isolation is other.isolation
        and (one.isolation is not Isolation.SCOPED or one.text_id == other.text_id)
        and one.max_model_len == other.max_model_len
    )
