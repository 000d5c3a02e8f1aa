"""What the tests of the offloading managers need that is no part of vLLM."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from scopekv.adapters.ed25519 import TicketSigner
from scopekv.core.leases import Lease
from scopekv.core.scopes import ScopeId

ROW_BYTES = 4096
CHUNK_TOKENS = 32
CAPACITY_BYTES = 1 << 30
WAIT_SECONDS = 20.0
SIGNER = TicketSigner(b"1" * 32)


def scope(letter: str) -> ScopeId:
    return ScopeId(letter.encode() * 16)


def account(letter: str) -> bytes:
    return letter.upper().encode() * 16


def until(true: Callable[[], object], what: str) -> None:
    """Wait for another thread's work."""
    limit = time.monotonic() + WAIT_SECONDS
    while not true():
        assert time.monotonic() < limit, f"never came: {what}"
        time.sleep(0.001)


class Clock:
    """Monotonic seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


class Leases:
    """A key broker in memory that answers while `open` is set."""

    def __init__(self) -> None:
        self.by_scope: dict[ScopeId, Lease] = {}
        self.open = threading.Event()
        self.open.set()

    def lease(self, ticket: str) -> Sequence[Lease]:  # noqa: ARG002 - the shape of LeaseSource
        self.open.wait(WAIT_SECONDS)
        return list(self.by_scope.values())


class Counted(OrderedDict[Any, Any]):
    """A dictionary that counts what is looked up, set and walked over."""

    steps = 0

    def __getitem__(self, key: Any) -> Any:
        self.steps += 1
        return super().__getitem__(key)

    def get(self, key: Any, default: Any = None) -> Any:
        self.steps += 1
        return super().get(key, default)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.steps += 1
        super().__setitem__(key, value)

    def __iter__(self) -> Iterator[Any]:
        for key in super().__iter__():
            self.steps += 1
            yield key

    def items(self) -> Any:
        return [(key, OrderedDict.__getitem__(self, key)) for key in self]

    def values(self) -> Any:
        return [OrderedDict.__getitem__(self, key) for key in self]
