"""One place that keeps blocks: a policy from the core, a capacity, and counts that must add up."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile

from scopekv.core.eviction import (
    Entry,
    GreedyDual,
    LearnedReuse,
    LruPolicy,
    Recency,
    ScopedPolicy,
    Shares,
)
from scopekv.core.lru import QueuePolicy
from scopekv.errors import Misuse
from scopekv.simulate.policies import ArcPolicy, FifoPolicy, S3FifoPolicy

Policy = QueuePolicy[int] | ScopedPolicy[int]
Maker = Callable[[int, int], Policy]  # from the capacity in blocks, and in bytes
POLICIES: dict[str, Maker] = {
    "lru": lambda _blocks, _bytes: LruPolicy(),
    "fifo": lambda _blocks, _bytes: FifoPolicy(),
    "arc": lambda blocks, _bytes: ArcPolicy(blocks),
    "s3-fifo": lambda blocks, _bytes: S3FifoPolicy(blocks),
    "recency": lambda _blocks, size: ScopedPolicy(Shares(size), Recency()),
    "gdsf": lambda _blocks, size: ScopedPolicy(Shares(size), GreedyDual()),
    "scopekv": lambda _blocks, size: ScopedPolicy(Shares(size), LearnedReuse(size)),
}
TIER_POLICY = "recency"  # of the tiers as they are: store/tier.py, host_policy.py
_KNOW_NO_CHAINS = frozenset(("lru", "fifo", "arc", "s3-fifo"))
_KNOW_NO_PINS = frozenset(("fifo", "s3-fifo"))


@dataclass(frozen=True, slots=True)
class Room:
    """`blocks`: what fits; infinite memory is `math.inf`."""

    blocks: float
    policy: str

    def __post_init__(self) -> None:
        if self.blocks < 1:
            raise Misuse("a memory holds 1 block or more: give it more, or leave it out")
        if self.policy not in POLICIES:
            raise Misuse(f"policy {self.policy[:40]!r} is none of {', '.join(POLICIES)}")


class Memory:
    """Blocks by name. Conservation: stored - evicted = len. All blocks are of one size."""

    __slots__ = (
        *("_block_bytes", "_blocks", "_capacity", "_from_tail", "_here", "_pins"),
        *("evicted", "policy", "refused", "reserved", "stored"),
    )

    def __init__(self, room: Room, block_bytes: int) -> None:
        self._blocks, self._block_bytes = room.blocks, block_bytes
        infinite = math.isinf(room.blocks)
        self._capacity = 1 << 62 if infinite else int(room.blocks) * block_bytes
        name = "lru" if infinite else room.policy
        self.policy = POLICIES[name](0 if infinite else int(room.blocks), self._capacity)
        self._here = self.policy.keys()  # as it is now, always: asked of every block of a prompt
        self._from_tail = name in _KNOW_NO_CHAINS
        self._pins: dict[int, int] | None = {} if name in _KNOW_NO_PINS else None
        self.stored = self.evicted = self.refused = 0
        self.reserved = 0  # blocks in use that have no name: of answers

    def __len__(self) -> int:
        return len(self.policy)

    def __contains__(self, name: object) -> bool:
        return name in self._here

    def leading(self, names: Sequence[int], start: int = 0) -> int:
        """The end of the run of blocks that are here, from `start` on."""
        here = self._here
        if start == len(names) or names[start] not in here:  # of most tiers for most prompts
            return start
        return start + len(list(takewhile(here.__contains__, islice(names, start, None))))

    def missing(
        self, names: Sequence[int], entries: Sequence[Entry[int]], start: int
    ) -> tuple[list[int], Sequence[Entry[int]]]:
        """The blocks from `start` on that are not here. One may be here after one that is not."""
        here, rest, made = self._here, list(names[start:]), entries[start:]
        if here.isdisjoint(rest):
            return rest, made
        made = [entry for name, entry in zip(rest, made, strict=True) if name not in here]
        return [name for name in rest if name not in here], made

    def make_room(
        self, blocks: int, account: bytes, protected: Collection[int] = ()
    ) -> list[int] | None:
        """Evict until `blocks` more fit, and return what went; None where it cannot be."""
        short = len(self._here) + self.reserved + blocks - self._blocks
        if short <= 0:
            return []
        if self._pins is not None:
            protected = self._pins.keys() | protected
        policy, size = self.policy, int(short) * self._block_bytes
        if isinstance(policy, (LruPolicy, ScopedPolicy)):
            victims = policy.evict(size, account, protected)
        else:
            victims = policy.victims(size, account, protected)
            for name in victims or ():
                policy.remove(name)
        if victims is not None:
            self.evicted += len(victims)
        return victims

    def pin(self, names: Sequence[int]) -> None:
        """Blocks are in use until they are unpinned as often."""
        if isinstance(self.policy, LruPolicy):
            self.policy.pin_all(names)
            return
        if self._pins is None:
            for name in names:
                self.policy.pin(name)
            return
        for name in names:
            self._pins[name] = self._pins.get(name, 0) + 1

    def unpin(self, names: Sequence[int]) -> None:
        """Undo one `pin` of a prompt's blocks, the last one first, as vLLM frees them."""
        if isinstance(self.policy, LruPolicy):
            self.policy.unpin_all(reversed(names))
            return
        if self._pins is None:
            for name in reversed(names):
                self.policy.unpin(name)
            return
        for name in names:
            if self._pins[name] > 1:
                self._pins[name] -= 1
            else:
                del self._pins[name]

    def put(self, names: Sequence[int], entries: Sequence[Entry[int]]) -> None:
        """Insert blocks for which there is room.

        For a policy that knows no chains the last one first, so that a chain goes from its tail.
        """
        policy = self.policy
        if isinstance(policy, LruPolicy):
            policy.insert_all(names[::-1], _alike(entries))
        elif isinstance(policy, ScopedPolicy):
            policy.insert_all(names, entries)
        else:
            places = range(len(names))
            for index in reversed(places) if self._from_tail else places:
                policy.insert(names[index], entries[index])
        self.stored += len(names)

    def put_in_use(
        self, names: Sequence[int], entries: Sequence[Entry[int]], kept: Sequence[int]
    ) -> None:
        """`put` what of the blocks `kept` is not here, and `pin` all of `kept`."""
        if isinstance(self.policy, LruPolicy) and len(names) == len(kept):
            self.policy.insert_all(names, _alike(entries), pinned=True)
            self.stored += len(names)
        else:
            self.put(names, entries)
            self.pin(kept)

    def touch(self, names: Sequence[int]) -> None:
        """A use of each, in the same order."""
        policy = self.policy
        if isinstance(policy, ScopedPolicy):
            policy.touch_all(names)
            return
        for name in reversed(names) if self._from_tail else names:
            policy.touch(name)

    def offer(
        self, names: Sequence[int], entries: Sequence[Entry[int]]
    ) -> tuple[list[int], list[int]]:
        """Keep what is here, and of the rest what fits: (new ones, what went)."""
        end = self.leading(names)
        new, made = self.missing(names, entries, end)
        here = names[:end]
        if end + len(new) < len(names):  # some lie behind one that is not here
            lacking = frozenset(new)
            here = [name for name in names if name not in lacking]
        if here:
            self.touch(here)
        if not new:
            return [], []
        if not math.isinf(self._blocks) and len(new) > self._blocks:
            self.refused += len(new) - int(self._blocks)
            new = new[: int(self._blocks)]
        kept = frozenset(names)
        gone = self.make_room(len(new), entries[0].account, kept)
        if gone is None:  # what is protected is in the way: the leading blocks as far as they fit
            gone = self._as_many(new, entries[0].account, kept)
        self.put(new, made[: len(new)])
        return new, gone

    def _as_many(self, new: list[int], account: bytes, protected: Collection[int]) -> list[int]:
        """Halve `new` until there is room for it."""
        while new:
            self.refused += len(new) - len(new) // 2
            del new[len(new) // 2 :]
            gone = self.make_room(len(new), account, protected)
            if gone is not None:
                return gone
        return []


def _alike(entries: Sequence[Entry[int]]) -> Sequence[Entry[int]]:
    """One entry for all blocks of a prompt: least recently used reads no more of it than its size.

    So the others are gone with the prompt, not looked up once more when its blocks are.
    """
    return [*entries[:1]] * len(entries)
