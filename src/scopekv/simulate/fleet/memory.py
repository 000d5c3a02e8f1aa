"""One place that keeps blocks: a policy from the core, a capacity, and counts that must add up."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from scopekv.core.admission import Admission, expected_worth
from scopekv.core.eviction import Entry, EvictionPolicy, LruPolicy, ScopedPolicy, Shares
from scopekv.core.reasons import AdmissionReason
from scopekv.errors import Misuse

Maker = Callable[[int], EvictionPolicy[int]]  # from the capacity in bytes
_KEY_MASK = (1 << 128) - 1


def _scoped(capacity_bytes: int) -> EvictionPolicy[int]:
    return ScopedPolicy(Shares(capacity_bytes))


def _lru(_capacity_bytes: int) -> EvictionPolicy[int]:
    return LruPolicy()


POLICIES: dict[str, Maker] = {"lru": _lru, "scopekv": _scoped}


@dataclass(frozen=True, slots=True)
class Room:
    """`blocks`: what fits; infinite memory is `math.inf`. `admits`: new blocks are judged first."""

    blocks: float
    policy: str
    admits: bool = False

    def __post_init__(self) -> None:
        if self.blocks < 1:
            raise Misuse("a memory holds 1 block or more: give it more, or leave it out")
        if self.policy not in POLICIES:
            raise Misuse(f"policy {self.policy[:40]!r} is none of {', '.join(POLICIES)}")


class Memory:
    """Blocks by name. Conservation: stored - evicted = len. All blocks are of one size."""

    __slots__ = (
        *("_admission", "_block_bytes", "_blocks", "_capacity", "evicted", "policy", "refused"),
        *("reserved", "stored"),
    )

    def __init__(self, room: Room, block_bytes: int) -> None:
        self._blocks, self._block_bytes = room.blocks, block_bytes
        infinite = math.isinf(room.blocks)
        self._capacity = 1 << 62 if infinite else int(room.blocks) * block_bytes
        self.policy = POLICIES["lru" if infinite else room.policy](self._capacity)
        self._admission = Admission() if room.admits and not infinite else None
        self.stored = self.evicted = self.refused = 0
        self.reserved = 0  # blocks in use that have no name: of answers

    def __len__(self) -> int:
        return len(self.policy)

    def __contains__(self, name: object) -> bool:
        return name in self.policy

    def leading(self, names: Sequence[int], start: int = 0) -> int:
        """The end of the run of blocks that are here, from `start` on."""
        policy = self.policy
        for index in range(start, len(names)):
            if names[index] not in policy:
                return index
        return len(names)

    def make_room(
        self, blocks: int, account: bytes, protected: Collection[int] = ()
    ) -> list[int] | None:
        """Evict until `blocks` more fit, and return what went; None where it cannot be."""
        short = len(self.policy) + self.reserved + blocks - self._blocks
        if short <= 0:
            return []
        victims = self.policy.victims(int(short) * self._block_bytes, account, protected)
        if victims is not None:
            for name in victims:
                self.policy.remove(name)
            self.evicted += len(victims)
        return victims

    def put(self, names: Sequence[int], entries: Sequence[Entry[int]]) -> None:
        """Insert blocks for which there is room, the last one first: a chain goes from its tail."""
        insert = self.policy.insert
        for index in range(len(names) - 1, -1, -1):
            insert(names[index], entries[index])
        self.stored += len(names)

    def touch(self, names: Sequence[int]) -> None:
        """A use of each, the last one first."""
        touch = self.policy.touch
        for name in reversed(names):
            touch(name)

    def offer(
        self, names: Sequence[int], entries: Sequence[Entry[int]]
    ) -> tuple[list[int], list[int]]:
        """Keep what is here, and of the rest what is admitted and fits: (new ones, what went)."""
        policy = self.policy
        self.touch([name for name in names if name in policy])
        wanted = [index for index, name in enumerate(names) if name not in policy]
        if self._admission is not None and wanted:
            wanted = self._admitted(self._admission, names, entries, wanted)
        if not wanted:
            return [], []
        new = [names[index] for index in wanted]
        if not math.isinf(self._blocks) and len(new) > self._blocks:
            self.refused += len(new) - int(self._blocks)
            new, wanted = new[: int(self._blocks)], wanted[: int(self._blocks)]
        gone = self.make_room(len(new), entries[0].account, frozenset(names))
        if gone is None:  # what is protected is in the way: the leading blocks as far as they fit
            gone = self._as_many(new, entries[0].account, frozenset(names))
            wanted = wanted[: len(new)]
        self.put(new, [entries[index] for index in wanted])
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

    def _admitted(
        self,
        admission: Admission,
        names: Sequence[int],
        entries: Sequence[Entry[int]],
        wanted: list[int],
    ) -> list[int]:
        """Which are worth writing. What would have to go is looked up once for all of them."""
        policy, size, capacity = self.policy, self._block_bytes, self._capacity
        account, worth = entries[0].account, None
        short = (len(policy) + len(wanted)) * size > capacity
        if short and not policy.guaranteed(account, size * len(wanted)):
            victims = policy.victims(size, account)
            worth = max(map(policy.worth, victims)) if victims else None

        def reason(index: int, more: int) -> AdmissionReason:
            """Of one block, where `more` others have been admitted before it."""
            entry = entries[index]
            return admission.decide(
                (names[index] & _KEY_MASK).to_bytes(16, "little"),
                used_bytes=(len(policy) + more) * size,
                size_bytes=size,
                capacity_bytes=capacity,
                guaranteed=policy.guaranteed(account, size * (more + 1)),
                worth=expected_worth(cost=entry.cost, size_bytes=size, expected_uses=1.0),
                victim_worth=worth,
            )

        last = reason(wanted[-1], len(wanted) - 1)
        if last is AdmissionReason.ROOM or last is AdmissionReason.GUARANTEED:
            return wanted  # then so are those before it, which ask for less
        found: list[int] = []
        for index in wanted[:-1]:
            if reason(index, len(found)) is not AdmissionReason.FIRST_USE:
                found.append(index)
        if last is not AdmissionReason.FIRST_USE:
            found.append(wanted[-1])
        self.refused += len(wanted) - len(found)
        return found
