"""Two checks that are about the audit itself: is anything cached, and do the counters agree?"""

from __future__ import annotations

from scopekv.audit.endpoint import CHAT
from scopekv.audit.isolation.asking import Asking
from scopekv.audit.isolation.batches import Counters
from scopekv.audit.isolation.cells import Outcome
from scopekv.audit.isolation.matrix import Caller, Kind
from scopekv.audit.results import Check, Severity, Verdict


async def control_check(asking: Asking, caller: Caller) -> Check:
    """One caller asks the same twice. Without a hit, nothing that follows would say anything."""
    prompt = await asking.prompt(Kind.USER, caller, CHAT, asking.target.model)
    first = await asking.ask(caller, prompt)
    second = await asking.ask(caller, prompt)
    hit = second.outcome(asking.beyond[CHAT, asking.target.model]) is Outcome.HIT
    if hit:
        summary = f"the same caller read {second.cached} of {second.input_tokens} tokens again"
    elif not second.ok:
        summary = f"the request failed: {second.code}"
    else:
        summary = (
            "nobody hits anything: prefix caching is off, or usage does not tell cached_tokens "
            "(vLLM: --enable-prompt-tokens-details)"
        )
    return Check(
        name="isolation.control",
        title="The same caller's second request hits, and says so",
        verdict=Verdict.HELD if hit else Verdict.BLIND,
        summary=summary,
        control=summary,
        evidence={"first_cached": first.cached, "second_cached": second.cached},
    )


def counter_check(counters: Counters) -> Check:
    """Whether the engines read more from their caches than the answers told, where they were ours
    alone."""
    evidence = {
        "batches": counters.batches,
        "batches_without_other_work": counters.quiet,
        "batches_with_more_hits_than_told": counters.more,
        "most_untold_tokens": counters.worst,
    }
    if not counters.quiet:
        verdict = Verdict.NOT_TESTED
        summary = "the engines' own counters could not be compared: not reachable, or other work"
    elif counters.more:
        verdict = Verdict.BROKEN
        summary = (
            f"in {counters.more} of {counters.quiet} batches engines read more from their caches "
            f"than the answers said, by up to {counters.worst} tokens"
        )
    else:
        verdict = Verdict.HELD
        summary = f"engines counted what the answers said, in {counters.quiet} batches"
    return Check(
        name="isolation.counters",
        title="The engines' own counters agree that forbidden reads did not hit",
        verdict=verdict,
        summary=summary,
        severity=Severity.HIGH,
        tried=counters.quiet,
        evidence=evidence,
    )
