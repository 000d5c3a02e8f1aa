"""The registry and the root key as state in memory: what the key broker and scope keys ask for."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import cast

from scopekv.core.policy import Document
from scopekv.core.scopes import Principal, Scope, ScopeId
from scopekv.errors import Corrupt, Unavailable
from scopekv.ports import Registry, ScopeKeyRecord, Versions


class ScopeKeyTable:
    """`ports.ScopeKeys` over a dictionary."""

    def __init__(self, epochs: Counter[Scope]) -> None:
        self._epochs = epochs
        self._records: dict[tuple[ScopeId, int], ScopeKeyRecord] = {}

    def note(self, record: ScopeKeyRecord) -> bool:
        if self._epochs[record.owner.epoch_owner] != record.epoch:
            return False
        name = (record.scope, record.epoch)
        held = self._records.get(name)
        if held is not None and held.wrapped:
            record = replace(held, noted_at=record.noted_at)
        self._records[name] = record
        return True

    def get(self, scope: ScopeId, epoch: int) -> ScopeKeyRecord | None:
        return self._records.get((scope, epoch))

    def of_owner(self, owner: Scope, below_epoch: int) -> Sequence[ScopeKeyRecord]:
        found = self._records.values()
        return [one for one in found if one.owner == owner and one.epoch < below_epoch]

    def destroy(self, owner: Scope, below_epoch: int) -> int:
        gone = self.of_owner(owner, below_epoch)
        for one in gone:
            del self._records[one.scope, one.epoch]
        return len(gone)

    def destroy_idle(self, kind: str, noted_before: float) -> Sequence[ScopeKeyRecord]:
        gone = [
            one
            for one in self._records.values()
            if one.kind == kind and one.noted_at < noted_before
        ]
        for one in gone:
            del self._records[one.scope, one.epoch]
        return gone

    def counts(self) -> Mapping[tuple[str, str], int]:
        return Counter((one.kind, one.root_version) for one in self._records.values())

    def wrapped_by_others(self, root_version: str, limit: int) -> Sequence[ScopeKeyRecord]:
        found = [
            one
            for one in self._records.values()
            if one.wrapped and one.root_version != root_version
        ]
        return found[:limit]

    def rewrap(self, scope: ScopeId, epoch: int, wrapped: bytes, root_version: str) -> None:
        record = self._records[scope, epoch]
        self._records[scope, epoch] = replace(record, wrapped=wrapped, root_version=root_version)


@dataclass(slots=True)
class _Owned:
    org_uid: str


class WorldRegistry:
    """The part of `ports.Registry` that is asked here. `down`: every call raises `Unavailable`."""

    def __init__(self) -> None:
        self.down = False
        self.principals: dict[str, Principal] = {}
        self.documents: dict[str, tuple[Document, str]] = {}  # uid -> document, owner's uid
        self.epochs: Counter[Scope] = Counter()
        self.keys = ScopeKeyTable(self.epochs)
        self._changes = 0

    @property
    def port(self) -> Registry:
        """As a registry. What is not asked for in this world is missing."""
        return cast(Registry, self)

    def versions(self) -> Versions:
        self._reach()
        return Versions(self._changes, self._changes, self._changes, self._changes)

    def epoch(self, scope: Scope) -> int:
        self._reach()
        return self.epochs[scope.epoch_owner]

    def changed(self) -> None:
        """A change of principals or documents was committed."""
        self._changes += 1

    @contextmanager
    def read(self) -> Iterator[SimpleNamespace]:
        self._reach()
        yield self._view()

    @contextmanager
    def write(self) -> Iterator[SimpleNamespace]:
        self._reach()
        yield self._view()

    def _view(self) -> SimpleNamespace:
        return SimpleNamespace(
            scope_keys=self.keys,
            epochs=SimpleNamespace(get=self._epoch, bump=self._bump),
            documents=SimpleNamespace(get=self._document),
        )

    def _epoch(self, scope: Scope) -> int:
        return self.epochs[scope.epoch_owner]

    def _bump(self, scope: Scope) -> int:
        self._changes += 1
        self.epochs[scope.epoch_owner] += 1
        return self.epochs[scope.epoch_owner]

    def _document(self, uid: str) -> _Owned | None:
        found = self.documents.get(uid)
        return None if found is None else _Owned(found[1])

    def _reach(self) -> None:
        if self.down:
            raise Unavailable("the simulated registry is out of reach")


class WorldRootKey:
    """`ports.KeyWrapper` whose wrapping hides nothing: what matters here is who may unwrap."""

    def __init__(self) -> None:
        self.down = False
        self._versions = ["root:0"]
        self._made = 1

    @property
    def version(self) -> str:
        self._reach()
        return self._versions[0]

    def wrap(self, key: bytes, context: bytes) -> bytes:
        return b"|".join((self.version.encode(), _digest(context), key.hex().encode()))

    def unwrap(self, wrapped: bytes, context: bytes) -> bytes:
        self._reach()
        version, bound, key = wrapped.split(b"|")
        if version.decode() not in self._versions or bound != _digest(context):
            raise Corrupt("a wrapped scope key does not open")
        return bytes.fromhex(key.decode())

    def rotate(self) -> str:
        self._versions.insert(0, f"root:{self._made}")
        self._made += 1
        return self._versions[0]

    def retire(self) -> int:
        gone = len(self._versions) - 1
        del self._versions[1:]
        return gone

    def close(self) -> None:
        """Nothing is open."""

    def _reach(self) -> None:
        if self.down:
            raise Unavailable("the simulated root key is out of reach")


def _digest(context: bytes) -> bytes:
    return hashlib.sha256(context).hexdigest().encode()
