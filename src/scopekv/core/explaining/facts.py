"""What became of the caller's own blocks: causes that no comparison of texts can show."""

from __future__ import annotations

from dataclasses import dataclass

from scopekv.core.explaining.causes import Cause, Certainty, MissCause


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of how a request was served, beside the earlier one it is compared with.

    `cached`: tokens read from the cache, None if the engine did not say. `age_seconds`: between the
    two. `retention_seconds`: how long blocks of the scope are kept. `fetch_reason`: of
    `core.reasons.FetchReason`, where an outer tier had it.
    """

    cached: int | None = None
    age_seconds: float = 0.0
    retention_seconds: float | None = None
    epoch_changed: bool = False
    same_instance: bool = True
    whole_prompt: bool = False
    fetch_reason: str = ""


_SLOW = frozenset({"recompute_faster", "too_little", "too_far", "tier_suspended"})


def served_less(facts: Facts, expected: int) -> Cause | None:
    """Why fewer tokens came from the cache than the common prefix would allow."""
    if facts.cached is None or facts.cached >= expected:
        return None
    lost = expected - facts.cached

    def cause(code: MissCause, certainty: Certainty = Certainty.CONFIRMED) -> Cause:
        return Cause(code, certainty, "", facts.cached or 0, lost)

    if facts.whole_prompt:
        return cause(MissCause.ENGINE_WITHOUT_PLUGIN)
    if facts.epoch_changed:
        return cause(MissCause.REVOKED)
    if facts.retention_seconds is not None and facts.age_seconds > facts.retention_seconds:
        return cause(MissCause.EXPIRED)
    if facts.fetch_reason in _SLOW:
        return cause(MissCause.TIER_TOO_SLOW)
    if not facts.same_instance:
        return cause(MissCause.ROUTED_ELSEWHERE)
    return cause(MissCause.EVICTED, Certainty.SUSPECTED)
