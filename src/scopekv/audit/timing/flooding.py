"""Cache flooding: can one tenant make another one's prefix leave?

Asked in two ways, since they cost the victim differently: did the prefix leave the memory where it
was (its answers got slower), and must it be computed again (nothing of it is cached in any tier)?
The control is the attacker's own oldest prompts: were they not pushed out by the flood either,
then the flood was too small to say anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

from scopekv.audit.endpoint import Reply
from scopekv.audit.results import Check, Plain, Severity, Verdict
from scopekv.audit.statistics import faster_p
from scopekv.audit.timing.asking import Asker, Lost, Party
from scopekv.audit.timing.sampling import Step
from scopekv.errors import Unavailable

WATCHED = 12  # prompts of either side that are asked for before and after
_SLOWER_ALPHA = 0.001
_LOST_MAX = 50


@dataclass(slots=True)
class _Side:
    """What one side's watched prompts gave: computed, then from the cache, then after the flood."""

    prompts: list[str] = field(default_factory=list)
    new: list[Reply] = field(default_factory=list)
    before: list[Reply] = field(default_factory=list)
    after: list[Reply] = field(default_factory=list)

    @property
    def told(self) -> bool:
        """Whether the usage tells cached tokens, and told some before the flood."""
        return all(reply.cached_tokens is not None for reply in (*self.before, *self.after))

    @property
    def cached(self) -> bool:
        """Whether the prompts were cached before the flood: what is to be lost must be there."""
        if self.told:
            return all(_cached(reply) > 0 for reply in self.before)
        return faster_p(_times(self.before), _times(self.new)) < _SLOWER_ALPHA

    @property
    def recomputed(self) -> int:
        """Of how many prompts less than half of what was cached still is, in any tier.

        Where usage does not tell: of how many the time is nearer to computing than to a hit.
        """
        if self.told:
            pairs = zip(self.before, self.after, strict=True)
            return sum(2 * _cached(after) < _cached(before) for before, after in pairs)
        middle = (median(_times(self.before)) + median(_times(self.new))) / 2
        return sum(at > middle for at in _times(self.after))

    @property
    def slower_p(self) -> float:
        """That the answers after the flood are slower than before it by chance alone."""
        return faster_p(_times(self.before), _times(self.after))

    @property
    def pushed_out(self) -> bool:
        """Whether they left the memory where they were."""
        return self.slower_p < _SLOWER_ALPHA or self.recomputed > 0

    def figures(self) -> dict[str, Plain]:
        return {
            "recomputed": self.recomputed,
            "slower_p": self.slower_p,
            "told_by_usage": self.told,
            "cached_tokens_before": [reply.cached_tokens for reply in self.before],
            "cached_tokens_after": [reply.cached_tokens for reply in self.after],
            "median_seconds_computed": round(median(_times(self.new)), 6),
            "median_seconds_before": round(median(_times(self.before)), 6),
            "median_seconds_after": round(median(_times(self.after)), 6),
        }


@dataclass(slots=True, repr=False)
class Flooding:
    """One flood of `prompts` prompts that nobody sent before. Use once."""

    asker: Asker
    victim: Party
    attacker: Party
    prompts: int
    _lost: int = 0

    async def check(self, step: Step) -> Check:
        """Flood, and look. Raises `Unavailable` where the endpoint fails too often."""
        total = 6 * WATCHED + self.prompts
        done = 0

        def count() -> None:
            nonlocal done
            done += 1
            step("flooding", done, total)

        victim, attacker = _Side(), _Side()
        for side, party in ((victim, self.victim), (attacker, self.attacker)):
            side.prompts = [self.asker.letters.fresh() for _ in range(WATCHED)]
            side.new = await self._ask(party, side.prompts, count)
        for side, party in ((victim, self.victim), (attacker, self.attacker)):
            side.before = await self._ask(party, side.prompts, count)
        for _ in range(self.prompts):
            await self._ask(self.attacker, [self.asker.letters.fresh()], count)
        for side, party in ((victim, self.victim), (attacker, self.attacker)):
            side.after = await self._ask(party, side.prompts, count)
        return _check(victim, attacker, self.prompts, self._lost)

    async def _ask(
        self, party: Party, prompts: Sequence[str], count: Callable[[], None]
    ) -> list[Reply]:
        replies = []
        for prompt in prompts:
            replies.append(await self._until_answered(party, prompt))
            count()
        return replies

    async def _until_answered(self, party: Party, prompt: str) -> Reply:
        """A prompt may be sent twice here: what it leaves in the cache is the sender's own."""
        while True:
            try:
                return await self.asker.ask(party, prompt)
            except Lost:
                self._lost += 1
                if self._lost > _LOST_MAX:
                    raise Unavailable(f"{self._lost} requests of the flood were lost") from None


def _check(victim: _Side, attacker: _Side, flood: int, lost: int) -> Check:
    verdict = Verdict.HELD
    if victim.cached and victim.recomputed:
        verdict = Verdict.BROKEN
    elif not victim.cached or not attacker.pushed_out:
        verdict = Verdict.BLIND
    left = "left" if victim.pushed_out else "stayed in"
    seen = (
        f"after {flood} prompts {victim.recomputed} of {WATCHED} prefixes of the victim had to be "
        f"computed again; they {left} the memory where they were (p {victim.slower_p:.2g})"
    )
    if not victim.cached:
        seen = "the victim's own prompts were not cached before the flood, so nothing could leave"
    elif verdict is Verdict.BLIND:
        seen = f"{flood} prompts did not push out the attacker's own either: flood with more"
    pushed = "were" if attacker.pushed_out else "were not"
    return Check(
        name="timing.flooding",
        title="One tenant's flood does not make another's prefix leave every tier",
        verdict=verdict,
        summary=seen,
        severity=Severity.LOW,
        tried=flood,
        control=f"the attacker's own oldest prompts {pushed} pushed out by its flood",
        evidence={
            "flood": flood,
            "watched": WATCHED,
            "errors": lost,
            "victim": victim.figures(),
            "attacker": attacker.figures(),
        },
    )


def _cached(reply: Reply) -> int:
    return reply.cached_tokens or 0


def _times(replies: Sequence[Reply]) -> list[float]:
    return [reply.ttft_seconds for reply in replies]
