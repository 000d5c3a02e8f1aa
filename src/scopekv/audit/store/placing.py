"""Known prompts in the stores: placed through the gateway, then waited for by looking.

Writes to a tier are asynchronous. What is judged before they have come is judged for nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from scopekv.audit.store.asking import Asker, Prompt, PromptMaker, Told
from scopekv.audit.store.media import Found, Medium
from scopekv.audit.store.target import StoreSettings

_POLL_SECONDS = 0.1
Listing = dict[str, Found]


@dataclass(slots=True, repr=False)
class Placed:
    """One prompt that was answered. `objects`: what is new since, by the place of a store."""

    prompt: Prompt
    told: Told
    objects: Mapping[str, Sequence[Found]] = field(default_factory=dict)

    @property
    def everywhere(self) -> bool:
        """Whether every store got something."""
        return bool(self.objects) and all(self.objects.values())

    @property
    def chains(self) -> set[str]:
        """The folders of what is new, over all stores."""
        return {one.chain for found in self.objects.values() for one in found}


@dataclass(slots=True, repr=False)
class Canaries:
    """All that the audit placed. `again`, `fresh`: by the second caller; the first one's prompt,
    and one that nobody sent before."""

    words: list[str]
    text: Placed
    ids: Placed
    again: Placed | None = None
    fresh: Placed | None = None

    @property
    def all(self) -> list[Placed]:
        return [one for one in (self.text, self.ids, self.again, self.fresh) if one is not None]

    def names(self, place: str) -> set[str]:
        """The names of all their objects in one store."""
        return {one.name for placed in self.all for one in placed.objects.get(place, ())}

    @property
    def own_chain(self) -> str:
        """The first caller's own folder: the one that both its prompts filled; empty if unclear."""
        common = (self.text.chains & self.ids.chains) - {""}
        return common.pop() if len(common) == 1 else ""


async def listings(media: Iterable[Medium]) -> dict[str, Listing]:
    """What lies in each store now."""
    return {medium.place: await asyncio.to_thread(_listing, medium) for medium in media}


def _listing(medium: Medium) -> Listing:
    return {one.name: one for one in medium.walk() if one.is_object and one.is_block}


async def place(
    asker: Asker,
    media: Sequence[Medium],
    prompt: Prompt,
    settings: StoreSettings,
    *,
    as_other: bool = False,
) -> Placed:
    """Send one prompt, and wait until nothing more of it comes to the stores.

    Bounded by `settle_seconds_max`; a store that got nothing by then has an empty list.
    """
    before = await listings(media)
    told = await asker.ask(prompt, as_other=as_other)
    deadline = time.monotonic() + settings.settle_seconds_max
    new: dict[str, list[Found]] = {}
    since = time.monotonic()
    while True:
        began = time.monotonic()
        after = await listings(media)
        found = {
            place: [one for name, one in after[place].items() if name not in before[place]]
            for place in after
        }
        now = time.monotonic()
        if {place: len(ones) for place, ones in found.items()} != {
            place: len(ones) for place, ones in new.items()
        }:
            since = now
        new = found
        if now > deadline or (all(new.values()) and now - since > settings.still_seconds):
            return Placed(prompt, told, new)
        await asyncio.sleep(max(_POLL_SECONDS, now - began))  # a large store: half of the time


async def place_canaries(
    asker: Asker,
    media: Sequence[Medium],
    maker: PromptMaker,
    settings: StoreSettings,
    *,
    two: bool,
) -> Canaries:
    """A text and token ids by the first caller; the same ids and fresh ones by the second."""
    words = maker.words()
    text = await place(asker, media, " ".join(words), settings)
    ids = await place(asker, media, maker.token_ids(), settings)
    made = Canaries(words, text, ids)
    if two:
        made.again = await place(asker, media, ids.prompt, settings, as_other=True)
        made.fresh = await place(asker, media, maker.token_ids(), settings, as_other=True)
    return made
