"""An object store in memory that can be slow, hang, fail and lie: a real one in a fake world."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from scopekv.errors import Unavailable
from scopekv.ports import ObjectKey, ObjectStat
from scopekv.ports.objects import Bytes, Wanted

_READS = ("get", "present", "chains", "objects", "quarantined")
_WRITES = ("put", "delete", "quarantine")


@dataclass(slots=True)
class Conduct:
    """How the store behaves from now on. Change it at any time.

    `capacity_bytes`: beyond it a put fails as on a full disk. `fail_reads`, `fail_writes`: raise
    `Unavailable`. `flip_reads`: every object read comes with one bit changed.
    """

    latency_seconds: float = 0.0
    bytes_per_second: float = float("inf")
    capacity_bytes: float = float("inf")
    fail_reads: bool = False
    fail_writes: bool = False
    flip_reads: bool = False


class SimulatedObjectStore:
    """The contract of `ObjectStore`, with trouble on demand. Two of them may share `objects`."""

    def __init__(
        self,
        medium: str = "directory",
        *,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
        beside: SimulatedObjectStore | None = None,
    ) -> None:
        """`beside`: another client of the same bytes, with conduct and calls of its own."""
        self.conduct = Conduct()
        self.calls: list[tuple[str, tuple[ObjectKey, ...]]] = []
        self._medium = medium
        self._clock = clock
        self._sleep = sleep
        self._lock: threading.Lock = beside._lock if beside else threading.Lock()
        self.stored: dict[ObjectKey, tuple[bytes, float]] = beside.stored if beside else {}
        self.kept_aside: dict[ObjectKey, tuple[bytes, float]] = beside.kept_aside if beside else {}
        self._flowing = {name: threading.Event() for name in (*_READS, *_WRITES)}
        self.waiting = 0  # calls that hang now
        for event in self._flowing.values():
            event.set()
        self._closed = False

    @property
    def medium(self) -> str:
        return self._medium

    def hang(self, *calls: str) -> None:
        """From now on these calls (`get`, ..., or all that `read` or `write`) wait for `resume`."""
        groups = {"read": _READS, "write": _WRITES}
        for call in calls or ("read", "write"):
            for name in groups.get(call, (call,)):
                self._flowing[name].clear()

    def resume(self) -> None:
        for event in self._flowing.values():
            event.set()

    def put(self, key: ObjectKey, parts: Sequence[Bytes]) -> None:
        content = b"".join(bytes(part) for part in parts)
        self._call("write", "put", (key,), len(content))
        with self._lock:
            others = sum(len(data) for one, (data, _) in self.stored.items() if one != key)
            if others + len(content) > self.conduct.capacity_bytes:
                raise Unavailable("the simulated store is full")
            self.stored[key] = (content, self._clock())

    def get(self, key: ObjectKey, into: memoryview) -> int | None:
        with self._lock:
            size_bytes = len(self.stored[key][0]) if key in self.stored else 0
        self._call("read", "get", (key,), size_bytes)
        with self._lock:
            found = self.stored.get(key)
        if found is None:
            return None
        content = found[0]
        if len(content) <= into.nbytes:
            into[: len(content)] = content
            if self.conduct.flip_reads and content:
                into[len(content) // 2] ^= 1
        return len(content)

    def present(self, keys: Sequence[ObjectKey]) -> frozenset[ObjectKey]:
        self._call("read", "present", tuple(keys))
        with self._lock:
            return frozenset(key for key in keys if key in self.stored)

    def delete(self, keys: Sequence[ObjectKey]) -> int:
        self._call("write", "delete", tuple(keys))
        with self._lock:
            for key in keys:
                self.kept_aside.pop(key, None)
            return sum(self.stored.pop(key, None) is not None for key in keys)

    def chains(self) -> Iterator[str]:
        self._call("read", "chains", ())
        with self._lock:
            return iter({key.chain for key in self.stored})

    def objects(self, chain: str | Wanted | None = None) -> Iterator[ObjectStat]:
        self._call("read", "objects", ())
        with self._lock:
            found = _stats(self.stored)
        if isinstance(chain, str):
            return (stat for stat in found if stat.key.chain == chain)
        return (stat for stat in found if chain is None or chain(stat.key.chain))

    def quarantine(self, key: ObjectKey) -> None:
        self._call("write", "quarantine", (key,))
        with self._lock:
            found = self.stored.pop(key, None)
            if found is not None:
                self.kept_aside[key] = found

    def quarantined(self) -> Iterator[ObjectStat]:
        self._call("read", "quarantined", ())
        with self._lock:
            return iter(_stats(self.kept_aside))

    def close(self) -> None:
        self._closed = True
        self.resume()

    def used_bytes(self) -> int:
        with self._lock:
            return sum(len(content) for content, _ in self.stored.values())

    def damage(self, key: ObjectKey, change: Callable[[bytes], bytes]) -> None:
        """Replace an object's bytes behind everybody's back; its time stays."""
        with self._lock:
            content, stored_at = self.stored[key]
            self.stored[key] = (change(content), stored_at)

    def _call(
        self, direction: str, name: str, keys: tuple[ObjectKey, ...], size_bytes: int = 0
    ) -> None:
        with self._lock:
            self.calls.append((name, keys))
            self.waiting += 1
        self._flowing[name].wait()
        with self._lock:
            self.waiting -= 1
        conduct = self.conduct
        seconds = conduct.latency_seconds + size_bytes / conduct.bytes_per_second
        if seconds > 0:
            self._sleep(seconds)
        failing = conduct.fail_reads if direction == "read" else conduct.fail_writes
        if failing or self._closed:
            raise Unavailable("the simulated store is out of reach")


def _stats(objects: Mapping[ObjectKey, tuple[bytes, float]]) -> list[ObjectStat]:
    return [
        ObjectStat(key, len(content), stored_at) for key, (content, stored_at) in objects.items()
    ]
