"""The port of every outer tier: a place that keeps named, sealed bytes and understands none of it.

Adapters: a local directory, Valkey, S3. Contract: tests/contracts/test_object_stores.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

Bytes: TypeAlias = bytes | bytearray | memoryview
Wanted: TypeAlias = Callable[[str], bool]  # whether a folder is meant


@dataclass(frozen=True, slots=True, order=True)
class ObjectKey:
    """Where an object lies: the folder of its scope chain, and its keyed name in there.

    Both are made by `core.chains` and `core.sealing`: lower-case letters, digits and `-`, at most
    211 and 43 of them. Every call raises `Misuse` for another name before it reaches the store.
    """

    chain: str
    name: str


@dataclass(frozen=True, slots=True)
class ObjectStat:
    """One object as a listing shows it. `stored_at`: Unix seconds by the store's own clock."""

    key: ObjectKey
    size_bytes: int
    stored_at: float


class ObjectStore(Protocol):
    """Keeps objects. Thread-safe, blocking, and bounded in time: no call waits for ever.

    Every call may raise `Unavailable` (out of reach, full, read-only), and nothing else but
    `Misuse` for a name that is none of ours. An object becomes visible whole or not at all,
    whatever dies in the middle.
    """

    @property
    def medium(self) -> str:
        """The tier's short name in metrics and receipts: `directory`, `valkey` or `s3`."""
        ...

    def put(self, key: ObjectKey, parts: Sequence[Bytes]) -> None:
        """Keep the bytes of `parts`, one after the other, under `key`; replaces what was there."""
        ...

    def get(self, key: ObjectKey, into: memoryview) -> int | None:
        """Read the object into `into` and return how many bytes it has; None if there is none.

        An object longer than `into` returns its length and leaves `into` undefined.
        """
        ...

    def present(self, keys: Sequence[ObjectKey]) -> frozenset[ObjectKey]:
        """Return those of `keys` that exist now. One round trip where the store can."""
        ...

    def delete(self, keys: Sequence[ObjectKey]) -> int:
        """Delete these, and what is quarantined under their names; absent ones are no error.

        Returns how many were there, the quarantined not counted.
        """
        ...

    def chains(self) -> Iterator[str]:
        """The folders there are, in any order. An empty one may show."""
        ...

    def objects(self, chain: str | Wanted | None = None) -> Iterator[ObjectStat]:
        """What is stored, or what is stored in one folder or in those wanted, in any order.

        One walk, however many folders are wanted.
        """
        ...

    def quarantine(self, key: ObjectKey) -> None:
        """Take a corrupt object out of sight; whether anything of it is kept is the adapter's.

        An absent one is no error.
        """
        ...

    def quarantined(self) -> Iterator[ObjectStat]:
        """What is kept of corrupt objects, under the names they had, in any order.

        Purges and retention reach it: `delete` takes it away.
        """
        ...

    def close(self) -> None:
        """Give back connections and handles. Later calls raise `Unavailable`."""
        ...
