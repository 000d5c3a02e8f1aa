"""Bugs planted for each law of the fault simulation: what happens if a part stops doing its work.

Each is a patch of the product, put in from the test's side, that one law must find.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from scopekv.core import blocks, enforcement
from scopekv.core.block_table import BlockTable
from scopekv.core.chains import Link
from scopekv.core.fences import Fences
from scopekv.core.following import Follower
from scopekv.core.replay import UseLedger
from scopekv.core.scopes import ScopeId
from scopekv.engines.vllm.ledger import BlockLedger
from scopekv.errors import Corrupt
from scopekv.store.counts import Counts
from scopekv.store.fence import Fence
from scopekv.store.index import Index
from scopekv.store.jobs import Job, JobBoard
from scopekv.store.keyring import Keyring
from scopekv.store.sealed_objects import Address, SealedObjects
from scopekv.store.tier import Purged, SealedTier

Patch = pytest.MonkeyPatch
Plant = Callable[[Patch], None]


def _always(answer: object) -> Callable[..., object]:
    """A method that does nothing and says this."""

    def method(*_: object, **__: object) -> object:
        return answer

    return method


def scopes_left_out_of_tags(patch: Patch) -> None:
    """A block's tag covers the namespace and forgets the scopes: anybody's blocks are everybody's.

    In the engine and in the gateway alike, as a bug in the core would be.
    """
    real = blocks.block_tag

    def tag(
        namespace: blocks.Fingerprint, scopes: Sequence[tuple[ScopeId, int]], adapter: bytes = b""
    ) -> str:
        return real(namespace, [], adapter)

    patch.setattr(blocks, "block_tag", tag)


def digests_not_checked(patch: Patch) -> None:
    """A ticket counts for whatever tokens it comes with."""
    patch.setattr(enforcement, "matching_grants", lambda ticket, _: len(ticket.grants) - 1)


def straddling_blocks_are_wide(patch: Patch) -> None:
    """The block that holds the first private token counts as the wider segment's."""

    def tag(self: blocks.BlockTagger, start: int, end: int) -> str:
        first = self._scopes[bisect_right(self._ends, start)]
        return blocks.block_tag(self._namespace, [first], self._adapter)

    patch.setattr(blocks.BlockTagger, "tag", tag)


def corruption_is_served(patch: Patch) -> None:
    """An object that does not open is served as it lies there."""
    real = SealedObjects.open

    def lax(self: SealedObjects, address: Address, stored: memoryview) -> memoryview:
        try:
            return real(self, address, stored)
        except Corrupt:
            return stored[32:-16]

    patch.setattr(SealedObjects, "open", lax)


def _no_fence(patch: Patch) -> None:
    """An engine forgets what was revoked. Alone this breaks nothing: the purge leaves no block."""

    def forget(self: Fences, links: Iterable[Link], monotonic_ms: int) -> None:
        """Nothing is fenced."""

    patch.setattr(Fences, "raise_above", forget)
    patch.setattr(Keyring, "fence", _always(None))


def engine_memory_is_not_purged(patch: Patch) -> None:
    """The engine does not know which blocks are of a scope, and fences nothing."""
    _no_fence(patch)
    patch.setattr(BlockLedger, "tagged", _always([]))


def tiers_are_not_purged(patch: Patch) -> None:
    """A tier says that it has purged, and did not."""
    _no_fence(patch)
    patch.setattr(SealedTier, "purge", _always(Purged(0, 0)))


def pins_are_kept(patch: Patch) -> None:
    """A load that failed does not give its pin back."""
    patch.setattr(Index, "unpin", _always(None))


def evicted_bytes_stay_booked(patch: Patch) -> None:
    """A deletion that failed is counted for ever."""
    patch.setattr(Index, "cleared", _always(None))


def no_victims(patch: Patch) -> None:
    """A full tier finds that nothing has to go."""
    patch.setattr(Index, "_victims", _always([]))


def purged_bytes_forgotten(patch: Patch) -> None:
    """What was purged counts no more, though it is not deleted yet. It was so once."""

    def forget_tags(self: Index, tags: Any) -> int:
        return self.forget(self._records.tagged(tags))

    patch.setattr(Index, "forget_tags", forget_tags)


def ticket_uses_without_end(patch: Patch) -> None:
    """The ledger of ticket uses knows no limit."""

    def take(self: UseLedger, ticket: Any, now_ms: int) -> bool:
        self._uses[ticket.nonce] = (1, 0)
        return True

    patch.setattr(UseLedger, "take", take)


def jobs_are_not_reported(patch: Patch) -> None:
    """A job that a purge cancelled is never reported."""

    def cancel(self: Job, tags: Any, now: float) -> tuple[int, None]:
        with self.lock:
            gone = len(self._views)
            self._views.clear()
            self._reported = True
            return gone, None

    patch.setattr(Job, "cancel", cancel)


def dropped_tasks_are_forgotten(patch: Patch) -> None:
    """A task that is taken out of the queue settles nothing."""
    patch.setattr(JobBoard, "settle", _always(None))


def stuck_workers_stay(patch: Patch) -> None:
    """Puts that a fence stops stay under way in its books, so that no purge ends."""
    patch.setattr(Fence, "end_put", _always(False))


def loads_count_twice(patch: Patch) -> None:
    """Every block that a tier gave is counted again."""
    real = Counts.add

    def add(self: Counts, name: str, count: int = 1) -> None:
        real(self, name, 2 * count if name == "loaded" else count)

    patch.setattr(Counts, "add", add)


def gaps_go_unseen(patch: Patch) -> None:
    """A batch that is missing raises no doubt."""

    def take(self: Follower, batch: Any, now: float) -> None:
        if self.next_sequence is not None:
            self.next_sequence = batch.sequence
            self._apply(batch)

    patch.setattr(Follower, "take", take)
    patch.setattr(Follower, "heard", lambda self, *told: self.named(told[0]))


def removals_go_unseen(patch: Patch) -> None:
    """The index never takes a block out."""
    patch.setattr(BlockTable, "remove", _always(0))


BUGS: dict[str, tuple[Plant, ...]] = {
    "no_leak": (scopes_left_out_of_tags, digests_not_checked, straddling_blocks_are_wide),
    "no_wrong_bytes": (corruption_is_served,),
    "revocation_holds": (
        engine_memory_is_not_purged,
        tiers_are_not_purged,
    ),
    "conservation": (pins_are_kept, evicted_bytes_stay_booked),
    "bounded_memory": (no_victims, purged_bytes_forgotten, ticket_uses_without_end),
    "progress": (jobs_are_not_reported, dropped_tasks_are_forgotten, stuck_workers_stay),
    "honest_counters": (loads_count_twice,),
    "index_exact": (gaps_go_unseen, removals_go_unseen),
}
