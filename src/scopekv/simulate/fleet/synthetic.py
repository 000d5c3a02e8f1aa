"""Requests from dice whose sides were fitted to a trace: for fleets larger than any trace.

    prompt    [ system, one block, public | document, of one organisation or public | own turns ]

Fitted to mooncake_conversation (Mooncake, FAST'25, Apache-2.0) with conversations told apart by
`sessions`: lengths and pauses are log-normal with its means and deviations of the logarithm.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from scopekv.errors import Misuse
from scopekv.simulate.fleet.demand import Demand, servegen_weights
from scopekv.simulate.fleet.dice import draw
from scopekv.simulate.fleet.identity import Tenant
from scopekv.simulate.traces.request import TracedRequest

# Mean and deviation of the natural logarithm.
FIRST_TOKENS = 8.60, 1.25  # of a conversation's first prompt without its document
ASKED_TOKENS = 4.52, 1.8  # what a turn adds beside the answer before it
ANSWER_TOKENS = 5.34, 1.36
PAUSE_SECONDS = 4.92, 0.96
DOCUMENT_TOKENS = 7.94, 1.23
TURN_AGAIN = 0.297  # so that conversations have 1.42 turns
ON_DOCUMENT = 0.11  # of conversations
INPUT_TOKENS_MAX, ANSWER_TOKENS_MAX = 120_000, 2_000
_TURNS = 1 << 8
_TEXT = (1 << 20) + _TURNS + 37  # ids of a text; odd, so that texts do not meet in tables


@dataclass(frozen=True, slots=True, kw_only=True)
class Synthetic:
    """`rate` of new conversations a second, Poisson. `documents` are asked for by Zipf's law."""

    requests: int = 10_000
    orgs: int = 1_000
    users: int = 100_000
    documents: int = 1_000
    public: float = 0.25
    rate: float = 5.0
    block_tokens: int = 512
    seed: int = 1

    def __post_init__(self) -> None:
        if min(self.requests, self.orgs, self.documents, self.block_tokens) < 1:
            raise Misuse("a synthetic workload has requests, organisations, documents and blocks")
        if self.users < self.orgs or not self.rate > 0 or not 0 <= self.public <= 1:
            raise Misuse("it has a user to an organisation, a rate above 0, a public part to 1")

    def tenants(self) -> Callable[[int], Tenant]:
        """Who has a conversation: a document of an organisation is asked by its users alone."""
        demand, zipf = Demand(servegen_weights(self.orgs)), self._zipf()
        count, rest = divmod(self.users, self.orgs)
        seed, public = self.seed, self.public

        def of(session: int) -> Tenant:
            document = _document(zipf, seed, session)
            own = document is not None and not _is_public(seed, document, public)
            at = draw(seed, 3, document or 0) if own else draw(seed, 2, session)
            org = demand.pick(at)
            users = count + (org < rest)
            start = org * count + min(org, rest)
            return Tenant(start + int(draw(seed, 4, session) * users), org)

        return of

    def _zipf(self) -> Demand:
        return Demand([1 / (rank + 1) for rank in range(self.documents)])

    def __iter__(self) -> Iterator[TracedRequest]:
        """In order of time. Holds the conversations that go on."""
        dice, zipf = random.Random(self.seed), self._zipf()  # noqa: S311 - a simulation
        going: list[tuple[float, int, _Conversation]] = []
        begins, session = 0.0, 0
        for _ in range(self.requests):
            if not going or going[0][0] > begins:
                one = _Conversation(self, session, dice, _document(zipf, self.seed, session))
                heapq.heappush(going, (begins, session, one))
                session += 1
                begins += dice.expovariate(self.rate)
            at, number, one = heapq.heappop(going)
            yield one.turn(at)
            if one.goes_on():
                heapq.heappush(going, (at + dice.lognormvariate(*PAUSE_SECONDS), number, one))


class _Conversation:
    """One conversation and how long it has become."""

    __slots__ = ("_dice", "_last", "_made", "_session", "_shared", "_system", "_tokens", "_tools")

    def __init__(
        self, made: Synthetic, session: int, dice: random.Random, document: int | None
    ) -> None:
        self._made, self._session, self._dice = made, session, dice
        size, self._last = made.block_tokens, 0
        self._shared = [0]
        self._tools, self._system = size, 0
        if document is not None:
            blocks = _document_blocks(made.seed, document, size)
            self._shared += range((document + 1) * _TEXT, (document + 1) * _TEXT + blocks)
            if _is_public(made.seed, document, made.public):
                self._tools += blocks * size
            else:
                self._system = blocks * size
        self._tokens = len(self._shared) * size
        self._grow(FIRST_TOKENS)

    def _grow(self, by: tuple[float, float]) -> None:
        grown = self._tokens + 1 + int(self._dice.lognormvariate(*by))
        self._tokens = max(self._tokens + 1, min(grown, INPUT_TOKENS_MAX))

    def goes_on(self) -> bool:
        """Whether there is another turn, with the answer and a question in its prompt."""
        if self._tokens >= INPUT_TOKENS_MAX or self._last + 1 >= _TURNS:
            return False
        self._last += 1
        self._grow(ASKED_TOKENS)
        return self._dice.random() < TURN_AGAIN

    def turn(self, at: float) -> TracedRequest:
        size, tokens = self._made.block_tokens, self._tokens
        answer = min(1 + int(self._dice.lognormvariate(*ANSWER_TOKENS)), ANSWER_TOKENS_MAX)
        whole, count = tokens // size, -(-tokens // size)
        first = (self._made.documents + 1 + self._session) * _TEXT + _TURNS
        ids = [*self._shared]
        ids += range(first + len(ids), first + whole)
        if count > whole:  # not full yet: another block than when it is
            ids.append(first - 1 - self._last)
        self._tokens = min(tokens + answer, INPUT_TOKENS_MAX)
        return TracedRequest(
            at, tokens, answer, size, ids, self._session, self._tools, self._system
        )


def _document(zipf: Demand, seed: int, session: int) -> int | None:
    if draw(seed, 5, session) >= ON_DOCUMENT:
        return None
    return zipf.pick(draw(seed, 6, session))


def _is_public(seed: int, document: int, public: float) -> bool:
    return draw(seed, 7, document) < public


def _document_blocks(seed: int, document: int, size: int) -> int:
    dice = random.Random(seed << 32 | document)  # noqa: S311 - a simulation
    tokens = min(dice.lognormvariate(*DOCUMENT_TOKENS), INPUT_TOKENS_MAX / 2)
    return max(1, int(tokens) // size)
