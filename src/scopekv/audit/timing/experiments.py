"""What is compared: a probe of what the victim sent with a probe of what nobody sent.

Every experiment draws samples for three arms. In all of them somebody first sends a prompt, then
the attacker asks, so that the arms differ in nothing but what the attacker asks for:

    HIT      the victim sends X; the attacker asks for X
    MISS     the victim sends Y; the attacker asks for what nobody sent
    CONTROL  the attacker sends X; the attacker asks for X     (must be told from MISS)
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from scopekv.audit.results import Severity
from scopekv.audit.timing.asking import Asker, Party


class Arm(StrEnum):
    """See the module."""

    HIT = "hit"
    MISS = "miss"
    CONTROL = "control"


@dataclass(frozen=True, slots=True)
class Sample:
    """One value: smaller is what a hit should give. `cached`: tokens of all that the attacker asked
    for it, where the usage tells."""

    value: float
    cached: int | None


class Experiment(Protocol):
    """One attack. `title` is the claim that it tries to break.

    `main`: its samples grow with the sizes asked for; others stop at the size for attacks.
    `usage_decides`: cached tokens beyond those of a miss break the claim as well.
    `silent`: what it means that the control is not detected though the cache is on; empty where
    it means that the audit was blind.
    """

    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def severity(self) -> Severity: ...
    @property
    def main(self) -> bool: ...
    @property
    def usage_decides(self) -> bool: ...
    @property
    def silent(self) -> str: ...

    async def sample(self, arm: Arm) -> Sample:
        """Draw one value with prompts that were never used. Raises `Lost`: draw again."""
        ...


async def asked_for(text: str, arm: Arm, asker: Asker, attacker: Party) -> Sample:
    """The attacker asks for a document's text with an end of its own, or in MISS for another's."""
    asked = asker.letters.fresh() + "\n" if arm is Arm.MISS else text
    reply = await asker.ask(attacker, asked + asker.letters.fresh())
    return Sample(reply.ttft_seconds, reply.cached_tokens)


@dataclass(frozen=True, slots=True, repr=False)
class Prefix:
    """The attacker asks for a near prompt (or the very same, if `exact`), after a `document`.

    `repeats`: how often the prompt is sent before. The near prompt shares 0.95 of it.
    """

    name: str
    title: str
    asker: Asker
    victim: Party
    attacker: Party
    repeats: int = 1
    document: str = ""
    exact: bool = False
    main: bool = True
    usage_decides: bool = False
    silent: str = ""
    severity: Severity = Severity.HIGH

    async def sample(self, arm: Arm) -> Sample:
        letters = self.asker.letters
        sent = letters.fresh()
        sender = self.attacker if arm is Arm.CONTROL else self.victim
        for _ in range(self.repeats):
            await self.asker.ask(sender, self.document + sent)
        known = letters.fresh() if arm is Arm.MISS else sent
        asked = known if self.exact else letters.near(known)
        reply = await self.asker.ask(self.attacker, self.document + asked)
        return Sample(reply.ttft_seconds, reply.cached_tokens)


@dataclass(frozen=True, slots=True, repr=False)
class Identities:
    """One attacker with many names asks for the same prefix under each: the mean of the times."""

    asker: Asker
    victim: Party
    identities: Sequence[Party]
    name: str = "identities"
    title: str = "Many identities together learn no more than one"
    main: bool = False
    usage_decides: bool = False
    silent: str = ""
    severity: Severity = Severity.HIGH

    async def sample(self, arm: Arm) -> Sample:
        letters = self.asker.letters
        known = [letters.fresh()] * len(self.identities)
        if arm is Arm.CONTROL:
            known = [letters.fresh() for _ in self.identities]
            for identity, sent in zip(self.identities, known, strict=True):
                await self.asker.ask(identity, sent)
        else:
            await self.asker.ask(self.victim, known[0] if arm is Arm.HIT else letters.fresh())
        total, cached = 0.0, 0
        told = True
        for identity, one in zip(self.identities, known, strict=True):
            reply = await self.asker.ask(identity, letters.near(one))
            total += reply.ttft_seconds
            told = told and reply.cached_tokens is not None
            cached += reply.cached_tokens or 0
        return Sample(total / len(self.identities), cached if told else None)


@dataclass(frozen=True, slots=True, repr=False)
class Order:
    """A candidate is sent at once with dummies before and after it: which answer comes when?

    The value is the candidate's rank among the answers, 1 for the first.
    """

    asker: Asker
    victim: Party
    attacker: Party
    dummies: int = 2  # before the candidate, and again after it
    name: str = "order"
    title: str = "The order of answers under load does not tell whose prompts are cached"
    main: bool = False
    usage_decides: bool = False
    silent: str = "the order of answers tells too little even of one's own prompts"
    severity: Severity = Severity.HIGH

    async def sample(self, arm: Arm) -> Sample:
        letters = self.asker.letters
        sent = letters.fresh()
        await self.asker.ask(self.attacker if arm is Arm.CONTROL else self.victim, sent)
        prompts = [letters.fresh() for _ in range(2 * self.dummies + 1)]
        if arm is not Arm.MISS:
            prompts[self.dummies] = letters.near(sent)
        found = await asyncio.gather(
            *(self.asker.ask(self.attacker, prompt) for prompt in prompts), return_exceptions=True
        )
        replies = []
        for one in found:
            if isinstance(one, BaseException):
                raise one
            replies.append(one)
        came = [reply.sent_at + reply.ttft_seconds for reply in replies]
        rank = sum(at <= came[self.dummies] for at in came)
        return Sample(float(rank), replies[self.dummies].cached_tokens)
