"""Change objects as whoever can write to a store could, ask again, and see that none is served.

forget ─▶ change ─▶ ask        a miss, the right answer, the object put out of sight
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from scopekv.audit.store.asking import Asker, Told
from scopekv.audit.store.media import Medium
from scopekv.audit.store.placing import Placed
from scopekv.audit.store.tampers import Contents, Hand, Tamper
from scopekv.audit.store.target import Count, Do, StoreSettings
from scopekv.audit.store.workbench import Workbench
from scopekv.core.sealing import HEADER_BYTES

_POLL_SECONDS = 0.05
_LOOK_SECONDS_MAX = 3.0  # for a tier to put a corrupt object out of sight
REFUSED, SERVED, WRONG, UNSEEN = "refused", "served", "wrong answer", "not looked at"


@dataclass(slots=True)
class Outcomes:
    """What came of each way. `cold`: with nothing in any store nothing was cached, so that
    forgetting works. `warm`: the untouched objects were served, before each way and at the end.
    `uncounted`: ways that were refused while the tier counted no corrupt object. `rewritten`:
    the tier found out that objects are gone, and wrote some anew."""

    cold: bool = False
    warm: bool = False
    by_tamper: dict[str, str] = field(default_factory=dict)
    uncounted: list[str] = field(default_factory=list)
    rewritten: bool = True

    @property
    def tally(self) -> Counter[str]:
        return Counter(self.by_tamper.values())

    @property
    def served(self) -> int:
        return self.tally[SERVED] + self.tally[WRONG]

    @property
    def control(self) -> bool:
        return self.cold and self.warm and UNSEEN not in self.tally


@dataclass(slots=True, repr=False)
class Tampering:
    """Attacks on one store, the others emptied of the audit's objects meanwhile.

    `benches`: one for each store; `target`: the one that is attacked.
    """

    asker: Asker
    forget: Do
    corrupt: Count | None
    settings: StoreSettings
    benches: Sequence[Workbench]
    target: Workbench
    prompt: Placed
    spare: Placed
    other: Placed | None
    dice: random.Random

    @property
    def medium(self) -> Medium:
        return self.target.medium

    def mine(self, placed: Placed | None) -> Contents:
        """What was saved of a prompt in the attacked store."""
        if placed is None:
            return {}
        return self.target.contents(placed.objects.get(self.medium.place, ()))

    async def run(self, tampers: Sequence[Tamper]) -> Outcomes:
        """Try each way; the store is as it was when this returns or is cancelled."""
        made = Outcomes()
        try:
            made.cold = await self._cold()
            made.warm = await self._warm()
            if not (made.cold and made.warm):
                return made
            for tamper in tampers:
                if tamper.needs_other and not self.mine(self.other):
                    continue
                before = await self.corrupt() if self.corrupt else 0
                outcome = made.by_tamper[tamper.name] = await self._try(tamper)
                if outcome == REFUSED and not await self._rises(before):
                    made.uncounted.append(tamper.name)
            made.by_tamper["an older version of itself put back"] = await self._replayed(made)
            made.warm = await self._warm()
        finally:
            for bench in self.benches:
                bench.restore()
        return made

    async def _cold(self) -> bool:
        """With the prompt's objects gone from every store, nothing of it is cached."""
        for _ in range(self.settings.tries):
            await self._still()
            await asyncio.to_thread(self._empty, self.benches)
            told = await self._ask_cold()
            if not told.cached_tokens:
                return told.text == self.prompt.told.text
        return False

    async def _warm(self, *, as_other: bool = False) -> bool:
        """The untouched objects, of this store alone, are served and give the same answer."""
        for _ in range(self.settings.tries):
            await self._ready()
            told = await self._ask_cold(as_other=as_other)
            if told.cached_tokens:
                return told.text == self.prompt.told.text
        return False

    async def _rises(self, before: int) -> bool:
        """Whether the tiers count more corrupt objects than before, now or soon."""
        if self.corrupt is None:
            return True
        deadline = time.monotonic() + _LOOK_SECONDS_MAX
        while await self.corrupt() <= before:
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(_POLL_SECONDS)
        return True

    async def _try(self, tamper: Tamper) -> str:
        """The worst of what happened, until the tier has looked at what was changed.

        Served once with the right answer may be a write that was late; twice in a row is not.
        Before each try the untouched objects must be served: else a miss says nothing.
        """
        served = 0
        for _ in range(self.settings.tries):
            if not await self._warm(as_other=tamper.as_other):
                continue
            await self._ready()
            hand = Hand(
                self.mine(self.prompt), self.mine(self.spare), self.mine(self.other), self.dice
            )
            changes = tamper.change(hand)
            await asyncio.to_thread(self.target.change, changes)
            told = await self._ask_cold(as_other=tamper.as_other)
            if told.text != self.prompt.told.text:
                return WRONG
            if told.cached_tokens:
                served += 1
                if served > 1:
                    return SERVED
                continue
            served = 0
            if await self._looked_at(changes):
                return REFUSED
        return SERVED if served else UNSEEN

    async def _replayed(self, made: Outcomes) -> str:
        """An older seal of the same block, after the tier wrote it anew: that same block."""
        await self._ready()
        old = dict(self.mine(self.prompt))
        emptied: Mapping[str, bytes | None] = dict.fromkeys(old)
        await asyncio.to_thread(self.target.change, emptied)
        await self._ask_cold()
        await self._still()
        made.rewritten = await self._rewritten(old)
        await asyncio.to_thread(self._empty, [b for b in self.benches if b is not self.target])
        await asyncio.to_thread(self.target.change, old)
        told = await self._ask_cold()
        return REFUSED if told.text == self.prompt.told.text else WRONG

    async def _rewritten(self, names: Contents) -> bool:
        """Whether some of these lie there again, now or soon."""
        deadline = time.monotonic() + _LOOK_SECONDS_MAX
        while not await asyncio.to_thread(self.target.present, names):
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(_POLL_SECONDS)
        return True

    async def _ask_cold(self, *, as_other: bool = False) -> Told:
        await self.forget()
        return await self.asker.ask(self.prompt.prompt, as_other=as_other)

    async def _ready(self) -> None:
        """Everything is back in this store, nothing is under way, the others have nothing."""
        await self._still()
        await asyncio.to_thread(self.target.restore)
        await asyncio.to_thread(self._empty, [b for b in self.benches if b is not self.target])

    def _empty(self, benches: Sequence[Workbench]) -> None:
        for bench in benches:
            objects = [
                *self.prompt.objects.get(bench.medium.place, ()),
                *(self.other.objects.get(bench.medium.place, ()) if self.other else ()),
            ]
            bench.change(dict.fromkeys(bench.contents(objects)))

    async def _looked_at(self, changes: Mapping[str, bytes]) -> bool:
        """Whether some changed object was put out of sight, or written anew."""
        deadline = time.monotonic() + _LOOK_SECONDS_MAX
        while await asyncio.to_thread(self.target.unchanged, changes) == len(changes):
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(_POLL_SECONDS)
        return True

    async def _still(self) -> None:
        """Wait until no write comes any more, bounded."""
        deadline = time.monotonic() + self.settings.settle_seconds_max
        seen, since = await asyncio.to_thread(self._stamp), time.monotonic()
        while time.monotonic() - since < self.settings.still_seconds:
            await asyncio.sleep(_POLL_SECONDS)
            now = await asyncio.to_thread(self._stamp)
            if now != seen:
                seen, since = now, time.monotonic()
            if time.monotonic() > deadline:
                return

    def _stamp(self) -> dict[tuple[str, str], bytes | None]:
        """The heads of all the audit's objects: each seal has a nonce of its own in there."""
        return {
            (bench.medium.place, name): bench.medium.read(name, HEADER_BYTES)
            for bench in self.benches
            for name in bench.saved
        }
