"""Every store in turn is tampered with, and what came of it becomes checks."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from scopekv.audit.results import Check, Plain, Severity
from scopekv.audit.store.asking import Asker, PromptMaker
from scopekv.audit.store.epochs import EPOCHS, old_epoch
from scopekv.audit.store.judging import judged, not_tested, plural
from scopekv.audit.store.media import Medium
from scopekv.audit.store.placing import Canaries, Placed, place
from scopekv.audit.store.tampering import REFUSED, SERVED, UNSEEN, WRONG, Outcomes, Tampering
from scopekv.audit.store.tampers import TAMPERS
from scopekv.audit.store.target import Progress, StoreSettings, StoreTarget
from scopekv.audit.store.workbench import Workbench
from scopekv.errors import Unavailable

NAME, TITLE = "store.tamper", "What was changed in a store is a miss with the right answer"
COUNTED, COUNTED_TITLE = "store.tamper.counted", "Tiers count what they refuse"


@dataclass(slots=True, repr=False)
class Tampered:
    """The checks, and how many ways were tried and served."""

    checks: list[Check] = field(default_factory=list)
    tried: int = 0
    served: int = 0
    refused: int = 0
    uncounted: list[str] = field(default_factory=list)

    def add(self, medium: Medium, made: Outcomes) -> None:
        self.tried += made.tally.total() - made.tally[UNSEEN]
        self.served += made.served
        self.refused += made.tally[REFUSED] - 1  # an old version is that very block
        self.uncounted += made.uncounted
        same = sum(check.name.startswith(f"{NAME}.{medium.kind}") for check in self.checks)
        self.checks.append(_check(medium, made, f".{same + 1}" if same else ""))


def untested(target: StoreTarget, settings: StoreSettings, canaries: Canaries | None) -> str:
    """Why no store can be tampered with; empty if it can."""
    if not settings.tamper:
        return "only with --tamper, which changes objects of the audit's own prompts"
    if canaries is None:
        return "needs a gateway and a key, to ask for what was changed"
    if target.forget is None:
        return "needs engines that can be told to forget, or their memory answers"
    if not canaries.ids.everywhere:
        return "the audit's own prompts came to no store in time"
    if not canaries.own_chain:
        return "other writers were busy: the audit cannot tell its own objects for certain"
    return ""


async def tamper_all(
    made: Tampered,
    asker: Asker,
    media: Sequence[Medium],
    canaries: Canaries,
    *,
    maker: PromptMaker,
    target: StoreTarget,
    settings: StoreSettings,
    dice: random.Random,
    progress: Progress,
) -> None:
    """Attack each store alone, and note in `made` what came of it.

    All is put back when this returns, fails or is cancelled. Raises `Unavailable`.
    """
    if target.forget is None:
        return
    spare = _own(await place(asker, media, maker.token_ids(), settings), canaries.own_chain)
    prompt = _own(canaries.ids, canaries.own_chain)
    other = _others(canaries)
    benches: list[Workbench] = []
    try:
        for medium in media:
            objects = [
                one
                for placed in (prompt, spare, other)
                if placed is not None
                for one in placed.objects.get(medium.place, ())
            ]
            benches.append(await asyncio.to_thread(Workbench, medium, objects))
        for number, bench in enumerate(benches):
            progress(f"tampering with {bench.medium.kind}", number, len(benches))
            attack = Tampering(
                asker, target.forget, target.corrupt, settings,
                benches, bench, prompt, spare, other, dice,
            )  # fmt: skip
            made.add(bench.medium, await attack.run(TAMPERS))
    finally:
        _put_back(benches)
    made.checks.append(_counted(made, known=target.corrupt is not None))
    if target.revoke is not None:
        check = await old_epoch(asker, media, prompt, target.forget, target.revoke, settings)
        made.checks.append(check)
    else:
        why = "needs an administrator's key, to revoke the audit's own account"
        made.checks.append(not_tested(*EPOCHS, why))


def _put_back(benches: Sequence[Workbench]) -> None:
    """All of them, whatever fails with one; blocking, so that a cancelled audit does it too."""
    trouble: Unavailable | None = None
    for bench in benches:
        try:
            bench.put_back()
        except Unavailable as error:
            trouble = error
    if trouble is not None:
        raise trouble


def _own(placed: Placed, chain: str) -> Placed:
    """Only what lies in this folder: what others wrote meanwhile is not the audit's."""
    mine = {
        place: [one for one in found if one.chain == chain]
        for place, found in placed.objects.items()
    }
    return Placed(placed.prompt, placed.told, mine)


def _others(canaries: Canaries) -> Placed | None:
    """The second caller's objects of the prompt, if they can be told for certain."""
    if canaries.again is None or canaries.fresh is None:
        return None
    common = (canaries.again.chains & canaries.fresh.chains) - {"", canaries.own_chain}
    return _own(canaries.again, common.pop()) if len(common) == 1 else None


def _check(medium: Medium, made: Outcomes, ending: str) -> Check:
    broken = [
        f"{name}: {'served' if how == SERVED else 'another answer'}"
        for name, how in made.by_tamper.items()
        if how in (SERVED, WRONG)
    ]
    if not made.rewritten:
        broken.append("deleted objects were not written again: the tier believes that it has them")
    unseen = [name for name, how in made.by_tamper.items() if how == UNSEEN]
    control = "the untouched objects were served from this store alone, before each way and at the"
    control += " end, and an empty one served nothing"
    if unseen:
        control += f"; the tier never looked at: {', '.join(unseen)}"
    evidence: dict[str, Plain] = {
        "place": medium.place,
        "outcomes": dict(made.by_tamper),
        "untouched_served": made.warm,
        "empty_served_nothing": made.cold,
        "uncounted": made.uncounted,
    }
    return judged(
        f"{NAME}.{medium.kind}{ending}",
        f"{TITLE}: {medium.kind}",
        broken=broken,
        held=f"{plural(len(made.by_tamper), 'way')} to change objects, none served",
        control=control,
        control_ok=made.control,
        tried=len(made.by_tamper),
        evidence=evidence,
    )


def _counted(made: Tampered, *, known: bool) -> Check:
    if not known:
        why = "no engine was named, to be asked for its counters"
        return not_tested(COUNTED, COUNTED_TITLE, why, Severity.LOW)
    return judged(
        COUNTED,
        COUNTED_TITLE,
        broken=[f"refused and not counted: {what}" for what in dict.fromkeys(made.uncounted)],
        held=f"a corrupt object was counted at each of {made.refused} changes refused",
        control="changes were refused",
        control_ok=made.refused > 0,
        tried=made.refused,
        severity=Severity.LOW,
    )
