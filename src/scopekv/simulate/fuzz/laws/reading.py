"""The laws about what a request reads: whose it is, which bytes, and not after a revocation."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from scopekv.simulate.fuzz.laws.law import Law
from scopekv.simulate.fuzz.oracle import CONTENT_BYTES

if TYPE_CHECKING:
    from scopekv.simulate.fuzz.flight import Flight
    from scopekv.simulate.fuzz.world import World


class NoWrongBytes(Law):
    """What is read for a block was computed for exactly its tokens and all before (L7)."""

    name: ClassVar[str] = "no_wrong_bytes"

    def read(self, world: World, flight: Flight, block: int, data: bytes, source: str) -> None:
        content, rest = data[:CONTENT_BYTES], data[CONTENT_BYTES:]
        oracle = world.deployed.oracle
        if rest != content or not oracle.is_of(content, flight.prefix(block + 1)):
            self.broken(f"request {flight.number} read other bytes for block {block} ({source})")


class NoLeak(Law):
    """Whoever reads a block may read every text before its end (L1, L4)."""

    name: ClassVar[str] = "no_leak"

    def read(self, world: World, flight: Flight, block: int, data: bytes, source: str) -> None:
        oracle = world.deployed.oracle
        content = data[:CONTENT_BYTES]
        if not oracle.is_of(content, flight.prefix(block + 1)):
            return  # `NoWrongBytes` says so
        end = len(flight.prefix(block + 1)) // 4
        for text in oracle.origin(content, end):
            if text.label not in flight.allowed:
                self.broken(
                    f"request {flight.number} read block {block} ({source}), "
                    f"which holds text of {'/'.join(text.label)}"
                )


class RevocationHolds(Law):
    """Once a revocation returned success, nobody reads what it was for, from anywhere (L6)."""

    name: ClassVar[str] = "revocation_holds"

    def read(self, world: World, flight: Flight, block: int, data: bytes, source: str) -> None:
        oracle = world.deployed.oracle
        content = data[:CONTENT_BYTES]
        if not oracle.is_of(content, flight.prefix(block + 1)):
            return
        end = len(flight.prefix(block + 1)) // 4
        for label in oracle.revoked(oracle.origin(content, end)):
            self.broken(
                f"request {flight.number} read block {block} ({source}), "
                f"revoked with {'/'.join(label)}"
            )
