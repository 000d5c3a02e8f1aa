"""Objects of an epoch that was revoked, put back: at their own place, and in the new ones'."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from scopekv.audit.results import Check
from scopekv.audit.store.asking import Asker, Told
from scopekv.audit.store.judging import judged, plural
from scopekv.audit.store.media import Medium
from scopekv.audit.store.placing import Placed, place
from scopekv.audit.store.target import Do, StoreSettings
from scopekv.audit.store.workbench import Workbench

EPOCHS = (
    "store.tamper.old_epoch",
    "Objects of a revoked epoch are gone; put back, they are read by nobody",
)
AT_HOME, IN_NEW_PLACE = "at their own place", "in the place of new ones"


async def old_epoch(
    asker: Asker,
    media: Sequence[Medium],
    old: Placed,
    forget: Do,
    revoke: Do,
    settings: StoreSettings,
) -> Check:
    """Save, revoke, write anew, put the old bytes back, ask. Ends the caller's own epoch."""
    before = [
        await asyncio.to_thread(Workbench, medium, old.objects.get(medium.place, ()))
        for medium in media
    ]
    await revoke()
    left = [await asyncio.to_thread(_left, bench) for bench in before]
    await forget()
    told: dict[str, Told] = {}
    warm = False
    benches: list[Workbench] = []
    try:
        for bench in before:
            await asyncio.to_thread(bench.change, bench.saved)
        new = await place(asker, media, old.prompt, settings)
        told[AT_HOME] = new.told
        warm = await _served(asker, old, forget, settings)
        for bench in before:
            fresh = new.objects[bench.medium.place]
            mine = await asyncio.to_thread(Workbench, bench.medium, fresh)
            benches.append(mine)
            given = list(bench.saved.values()) or [b""]
            changes = {name: given[at % len(given)] for at, name in enumerate(mine.saved)}
            await asyncio.to_thread(mine.change, changes)
        await forget()
        told[IN_NEW_PLACE] = await asker.ask(old.prompt)
    finally:
        for bench in benches:
            bench.put_back()
        for bench in before:  # revoked: they are not put back, they go
            for name in bench.saved:
                bench.medium.remove(name)
    return _judge(old, told, sum(left), warm and new.everywhere)


def _left(bench: Workbench) -> int:
    """How many objects of the old epoch still lie there though the revocation is done."""
    there = {one.name for one in bench.medium.walk()}
    return len(there & bench.saved.keys())


async def _served(asker: Asker, old: Placed, forget: Do, settings: StoreSettings) -> bool:
    """Whether the new epoch's own objects are served."""
    for _ in range(settings.tries):
        await forget()
        if (await asker.ask(old.prompt)).cached_tokens:
            return True
        await asyncio.sleep(settings.still_seconds)
    return False


def _judge(old: Placed, told: Mapping[str, Told], left: int, warm: bool) -> Check:
    broken = [f"{plural(left, 'object')} still there after the revocation"] if left else []
    broken += [
        f"old objects {where}: {plural(one.cached_tokens, 'token')} read"
        for where, one in told.items()
        if one.cached_tokens
    ]
    broken += [
        f"old objects {where} changed the answer"
        for where, one in told.items()
        if one.text != old.told.text
    ]
    return judged(
        *EPOCHS,
        broken=broken,
        held="gone from every store; not read at their own place, nor in the place of new ones",
        control="objects of the new epoch were served before",
        control_ok=warm,
        tried=len(told),
    )
