"""What every eviction policy answers to, and the baseline: least recently used first."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterable, KeysView, Sequence
from itertools import repeat
from typing import Generic, NamedTuple, Protocol, Self, TypeVar, final

from scopekv.errors import Misuse

K = TypeVar("K", bound=Hashable)


class _Fields(NamedTuple, Generic[K]):
    account: bytes
    parent: K | None
    depth: int
    size_bytes: int
    cost: float


class Entry(_Fields[K]):
    """One cached block. Parents form a forest; a parent need not be cached.

    `account`: whose share it fills. `parent`: the block before it in the same prompt, if known.
    `depth`: blocks before it. `cost`: seconds of prefill to make it again. A tuple, as one is made
    for every block of every prompt.
    """

    __slots__ = ()

    def __new__(
        cls, account: bytes, parent: K | None, depth: int, size_bytes: int, cost: float
    ) -> Self:
        if size_bytes < 1 or depth < 0 or not 0 <= cost < math.inf:
            raise Misuse("a cached block has a size from 1, a depth from 0 and a finite cost")
        return tuple.__new__(cls, (account, parent, depth, size_bytes, cost))


def entries_of(
    account: bytes, keys: Sequence[K], size_bytes: int, costs: Sequence[float]
) -> list[Entry[K]]:
    """The entries of a prompt's blocks, from its first on, that are all of one size."""
    if not keys:
        return []
    if size_bytes < 1 or not (min(costs) >= 0 and sum(costs) < math.inf):
        raise Misuse("a cached block has a size from 1 and a finite cost")
    sizes, accounts = repeat(size_bytes, len(keys)), repeat(account, len(keys))
    parents = (None, *keys[:-1])
    made = zip(accounts, parents, range(len(keys)), sizes, costs, strict=True)
    new: Callable[..., Entry[K]] = tuple.__new__
    return list(map(new, repeat(Entry), made))


class EvictionPolicy(Protocol[K]):
    """Which blocks go. The order of calls is its time. Not safe across threads."""

    def insert(self, key: K, entry: Entry[K]) -> None:
        """Add a block. Raises Misuse where the key is cached already (touch it instead)."""

    def touch(self, key: K) -> None:
        """A use. No change for a key that is not cached."""

    def remove(self, key: K) -> None:
        """Forget a block, pinned or not. No change for a key that is not cached."""

    def pin(self, key: K) -> None:
        """In use: no victim, nor are its ancestors, until unpinned as often as pinned.

        Raises Misuse for a key that is not cached.
        """

    def unpin(self, key: K) -> None:
        """Undo one pin. No change for a key that is not cached or not pinned."""

    def victims(
        self, size_bytes: int, account: bytes, protected: Collection[K] = ()
    ) -> list[K] | None:
        """Keys whose removal frees at least `size_bytes` for `account`, in the order to go.

        None: it cannot be without breaking another's guarantee. Changes nothing that can be seen:
        the caller removes them. `protected` are no victims, nor are their ancestors.
        """

    def used_bytes(self, account: bytes | None = None) -> int:
        """Bytes of one account, or of all."""

    def __len__(self) -> int: ...

    def __contains__(self, key: object) -> bool: ...


class QueuePolicy(Generic[K]):
    """Blocks in one queue, a used one to its end. Knows pins; knows no shares, costs or chains.

    Cost: O(1) a step, O(victims + protected) for victims.
    """

    def __init__(self) -> None:
        self._entries: dict[K, Entry[K]] = {}
        self._order: OrderedDict[K, None] = OrderedDict()  # not the pinned ones
        self._pins: dict[K, int] = {}

    def insert(self, key: K, entry: Entry[K]) -> None:
        if key in self._entries:
            raise Misuse("the block is cached already; touch it instead")
        self._entries[key] = entry
        self._order[key] = None

    def touch(self, key: K) -> None:
        if key in self._order:
            self._order.move_to_end(key)

    def remove(self, key: K) -> None:
        self._entries.pop(key, None)
        self._order.pop(key, None)
        self._pins.pop(key, None)

    def pin(self, key: K) -> None:
        if key not in self._entries:
            raise Misuse("only a cached block can be pinned")
        self._pins[key] = self._pins.get(key, 0) + 1
        self._order.pop(key, None)

    def unpin(self, key: K) -> None:
        left = self._pins.get(key, 0) - 1
        if left > 0:
            self._pins[key] = left
        elif left == 0:
            del self._pins[key]
            self._order[key] = None

    def victims(
        self,
        size_bytes: int,
        account: bytes,  # noqa: ARG002 - the baseline knows no shares
        protected: Collection[K] = (),
    ) -> list[K] | None:
        found: list[K] = []
        if size_bytes <= 0:
            return found
        entries = self._entries
        for key in self._order:
            if key not in protected:
                found.append(key)
                size_bytes -= entries[key].size_bytes
                if size_bytes <= 0:
                    return found
        return None

    def used_bytes(self, account: bytes | None = None) -> int:
        """Cost: O(blocks), as it knows no shares."""
        entries = self._entries.values()
        return sum([one.size_bytes for one in entries if account in (None, one.account)])

    def keys(self) -> KeysView[K]:
        """A view of what is cached, always as it is now."""
        return self._entries.keys()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries


@final
class LruPolicy(QueuePolicy[K]):
    """Least recently used first: the baseline. Takes the blocks of a prompt at once, too."""

    def insert_all(
        self, keys: Sequence[K], entries: Sequence[Entry[K]], *, pinned: bool = False
    ) -> None:
        """`insert` each in this order, or none where one is cached already or comes twice.

        `pinned`: and `pin` each.
        """
        if not self._entries.keys().isdisjoint(keys) or len(set(keys)) != len(keys):
            raise Misuse("the block is cached already; touch it instead")
        cached, pins, order = self._entries, self._pins, self._order
        for key, entry in zip(keys, entries, strict=True):
            cached[key] = entry
            if pinned:
                pins[key] = 1
            else:
                order[key] = None

    def pin_all(self, keys: Iterable[K]) -> None:
        """`pin` each."""
        entries, pins, order = self._entries, self._pins, self._order
        for key in keys:
            if key not in entries:
                raise Misuse("only a cached block can be pinned")
            pins[key] = pins.get(key, 0) + 1
            order.pop(key, None)

    def unpin_all(self, keys: Iterable[K]) -> None:
        """`unpin` each, in this order."""
        pins, order = self._pins, self._order
        for key in keys:
            count = pins.pop(key, 0)
            if count == 1:
                order[key] = None
            elif count:
                pins[key] = count - 1

    def evict(
        self, size_bytes: int, account: bytes, protected: Collection[K] = ()
    ) -> list[K] | None:
        """`victims`, and `remove` of each."""
        victims = self.victims(size_bytes, account, protected)
        entries, order = self._entries, self._order
        for key in victims or ():  # none is pinned
            del entries[key], order[key]
        return victims
