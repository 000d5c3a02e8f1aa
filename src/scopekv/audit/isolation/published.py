"""A public document is cached before anybody asks for it: else its first reader's miss says that
nobody had read it, and everybody else's hit that somebody had."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from scopekv.audit.endpoint import CHAT
from scopekv.audit.isolation.asking import Asking
from scopekv.audit.isolation.cells import Outcome
from scopekv.audit.isolation.matrix import Caller
from scopekv.audit.isolation.target import Place
from scopekv.audit.isolation.texts import Prompt
from scopekv.audit.results import Check, Severity, Verdict

WAITS = (2.0, 4.0, 8.0)  # seconds after publishing; a busy engine takes longer
NAME, TITLE = "isolation.public_warm", "A public document hits for its very first reader"


async def warm_check(asking: Asking, callers: Sequence[Caller]) -> Check:
    """Each try publishes another document and reads it once, and once again."""
    if asking.target.registrar is None:
        summary = "no registry was given, so the audit can publish nothing"
        return Check(NAME, TITLE, Verdict.NOT_TESTED, summary, Severity.MEDIUM)
    await asking.alone(Place.ANY)
    beyond = asking.beyond[CHAT, asking.target.model]
    again = Outcome.MISS
    for number, seconds in enumerate(WAITS, 1):
        prompt = Prompt(CHAT, asking.target.model, asking.texts.text(), asking.texts.tail())
        await asking.document("public", prompt.head)
        await asyncio.sleep(seconds)
        first = (await asking.ask(callers[-1], prompt)).outcome(beyond)
        again = (await asking.ask(callers[0], prompt)).outcome(beyond)
        if first is Outcome.HIT:
            summary = f"the first reader hit, {seconds:g} s after the document was published"
            return Check(NAME, TITLE, Verdict.HELD, summary, Severity.MEDIUM, number)
    shared = again is Outcome.HIT
    summary = f"{len(WAITS)} documents were computed by their first reader, the last one after "
    summary += f"{WAITS[-1]:g} s; the next reader {'hit' if shared else 'did not hit either'}"
    verdict = Verdict.BROKEN if shared else Verdict.BLIND
    return Check(NAME, TITLE, verdict, summary, Severity.MEDIUM, len(WAITS))
