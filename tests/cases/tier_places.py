"""Where sealed tiers keep objects, and a second hand in there: the attacker's, or the fault's."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from scopekv.adapters.objects import DirectoryStore, open_store
from scopekv.ports import ObjectKey, ObjectStat, ObjectStore
from scopekv.ports.objects import Bytes, Wanted
from scopekv.simulate.object_store import SimulatedObjectStore
from scopekv.simulate.sealed_tier import BLOCK_BYTES
from scopekv.store.janitor import PROBE_FOLDER
from tests.contracts.object_servers import S3Server, Servers

OBJECT_BYTES = BLOCK_BYTES + 48
ROOM_BYTES = 64 * OBJECT_BYTES


def _no_probe(folder: str) -> bool:
    """What a tier that recovers tries out is there for a moment."""
    return folder != PROBE_FOLDER


class Place(Protocol):
    """One store of one kind, empty at first."""

    name: str
    shared: bool  # whether several processes use it at once
    keeps: bool  # whether content outlives a restart of the store
    quarantines: bool  # whether it keeps corrupt objects aside

    def open(self) -> ObjectStore:
        """A client of it, as a tier opens it."""
        ...

    def names(self) -> set[ObjectKey]:
        """What lies there now, quarantined objects not counted."""
        ...

    def aside(self) -> set[ObjectKey]:
        """What is quarantined."""
        ...

    def read(self, key: ObjectKey) -> bytes: ...
    def write(self, key: ObjectKey, content: bytes) -> None: ...
    def remove(self, key: ObjectKey) -> None: ...

    def stop(self) -> None:
        """Out of reach from now on: killed, or unmounted. Then `restart`."""
        ...

    def restart(self) -> None: ...
    def close(self) -> None: ...

    def used_bytes(self) -> int:
        return sum(len(self.read(key)) for key in self.names())


class SimulatedPlace(Place):
    name, shared, keeps, quarantines = "simulated", False, True, True

    def __init__(self) -> None:
        self._hand = SimulatedObjectStore()
        self._opened: list[SimulatedObjectStore] = []

    def open(self) -> SimulatedObjectStore:
        self._opened.append(SimulatedObjectStore(beside=self._hand))
        return self._opened[-1]

    def names(self) -> set[ObjectKey]:
        return {stat.key for stat in self._hand.objects(_no_probe)}

    def aside(self) -> set[ObjectKey]:
        return {stat.key for stat in self._hand.quarantined()}

    def read(self, key: ObjectKey) -> bytes:
        return self._hand.stored[key][0]

    def write(self, key: ObjectKey, content: bytes) -> None:
        self._hand.put(key, [content])

    def remove(self, key: ObjectKey) -> None:
        self._hand.delete([key])

    def stop(self) -> None:
        for store in self._opened:
            store.conduct.fail_reads = store.conduct.fail_writes = True

    def restart(self) -> None:
        for store in self._opened:
            store.conduct.fail_reads = store.conduct.fail_writes = False

    def close(self) -> None:
        for store in self._opened:
            store.resume()


class DirectoryPlace(Place):
    name, shared, keeps, quarantines = "directory", False, True, True

    def __init__(self, root: Path) -> None:
        self.root = root

    def open(self) -> DirectoryStore:
        return DirectoryStore(self.root)

    def names(self) -> set[ObjectKey]:
        return {
            ObjectKey(path.parent.name, path.name)
            for path in self.root.glob("r*/*")
            if _no_probe(path.parent.name)
        }

    def aside(self) -> set[ObjectKey]:
        names = (path.name for path in self.root.glob(".quarantine/*"))
        return {ObjectKey(*name.split(".")) for name in names}

    def read(self, key: ObjectKey) -> bytes:
        return (self.root / key.chain / key.name).read_bytes()

    def write(self, key: ObjectKey, content: bytes) -> None:
        folder = self.root / key.chain
        folder.mkdir(mode=0o700, exist_ok=True)
        (folder / key.name).write_bytes(content)

    def remove(self, key: ObjectKey) -> None:
        (self.root / key.chain / key.name).unlink()

    def stop(self) -> None:
        self.root.rename(self.root.with_name("unmounted"))

    def restart(self) -> None:
        self.root.with_name("unmounted").rename(self.root)

    def close(self) -> None:
        pass


class ServerPlace(Place):
    """A real server; the hand is another client of it."""

    shared, quarantines = True, False

    def __init__(self, servers: Servers) -> None:
        self.servers, self.url = servers, servers.url()
        self.name = "s3" if isinstance(servers, S3Server) else "valkey"
        self.keeps = self.name == "s3"
        self._hand = self.open()

    def open(self) -> ObjectStore:
        return self.client(10.0)

    def client(self, call_seconds: float) -> ObjectStore:
        return open_store(
            self.url, connect_seconds=min(2.0, call_seconds), call_seconds=call_seconds
        )

    def names(self) -> set[ObjectKey]:
        return {stat.key for stat in self._hand.objects(_no_probe)}

    def aside(self) -> set[ObjectKey]:
        return {stat.key for stat in self._hand.quarantined()}

    def read(self, key: ObjectKey) -> bytes:
        buffer = memoryview(bytearray(ROOM_BYTES))
        size_bytes = self._hand.get(key, buffer)
        assert size_bytes is not None
        return bytes(buffer[:size_bytes])

    def write(self, key: ObjectKey, content: bytes) -> None:
        self._hand.put(key, [content])

    def remove(self, key: ObjectKey) -> None:
        assert self._hand.delete([key]) == 1

    def used_bytes(self) -> int:
        return sum(stat.size_bytes for stat in self._hand.objects(_no_probe))

    def stop(self) -> None:
        self.servers.kill()

    def restart(self) -> None:
        self.servers.start()

    def pause(self) -> None:
        """It takes calls and answers none, until `go_on`."""
        self.servers.send(signal.SIGSTOP)

    def go_on(self) -> None:
        self.servers.send(signal.SIGCONT)

    def close(self) -> None:
        self._hand.close()


class Gate:
    """A real store whose answers come late, or not until they are let through.

    The call has been done by then: what was to be read is in the reader's buffer. A deletion can
    be held before it is done, too: `hold("before delete")`.
    """

    def __init__(self, inner: ObjectStore) -> None:
        self.medium = inner.medium
        self.late_seconds = 0.0
        self.waiting = 0
        self._inner = inner
        self._held: frozenset[str] = frozenset()
        self._rounds: Counter[str] = Counter()
        self._calls: Counter[str] = Counter()  # that wait
        self._passed: Counter[str] = Counter()
        self._ready = threading.Condition()

    def hold(self, *calls: str) -> None:
        """Let no answer of these calls through, or of any if none is named."""
        names = ("put", "get", "present", "delete", "chains", "objects", "quarantine")
        self._held = frozenset(calls or (*names, "quarantined"))

    def holds(self, call: str) -> bool:
        """Whether an answer of such a call waits now."""
        return self._calls[call] > 0

    def let_through(self) -> None:
        with self._ready:
            self._held = frozenset()
            self._ready.notify_all()

    def let_waiting_through(self, *calls: str) -> None:
        """Those that wait now (of these calls, or all), and no later ones. They have gone on."""
        with self._ready:
            until = {
                c: self._passed[c] + n for c, n in self._calls.items() if not calls or c in calls
            }
            self._rounds.update(until.keys())
            self._ready.notify_all()
            self._ready.wait_for(lambda: all(self._passed[c] >= n for c, n in until.items()))

    def put(self, key: ObjectKey, parts: Sequence[Bytes]) -> None:
        self._inner.put(key, parts)
        self._pass("put")

    def get(self, key: ObjectKey, into: memoryview) -> int | None:
        found = self._inner.get(key, into)
        self._pass("get")
        return found

    def present(self, keys: Sequence[ObjectKey]) -> frozenset[ObjectKey]:
        found = self._inner.present(keys)
        self._pass("present")
        return found

    def delete(self, keys: Sequence[ObjectKey]) -> int:
        self._pass("before delete")
        count = self._inner.delete(keys)
        self._pass("delete")
        return count

    def chains(self) -> Iterator[str]:
        found = list(self._inner.chains())
        self._pass("chains")
        return iter(found)

    def objects(self, chain: str | Wanted | None = None) -> Iterator[ObjectStat]:
        found = list(self._inner.objects(chain))
        self._pass("objects")
        return iter(found)

    def quarantine(self, key: ObjectKey) -> None:
        self._inner.quarantine(key)
        self._pass("quarantine")

    def quarantined(self) -> Iterator[ObjectStat]:
        found = list(self._inner.quarantined())
        self._pass("quarantined")
        return iter(found)

    def close(self) -> None:
        self.let_through()
        self._inner.close()

    def _pass(self, call: str) -> None:
        time.sleep(self.late_seconds)
        with self._ready:
            self.waiting, mine = self.waiting + 1, self._rounds[call]
            self._calls[call] += 1
            self._ready.wait_for(lambda: call not in self._held or self._rounds[call] > mine)
            self._calls[call] -= 1
            self._passed[call] += 1
            self.waiting -= 1
            self._ready.notify_all()
