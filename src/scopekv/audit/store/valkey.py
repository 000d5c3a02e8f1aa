"""A Valkey as its operator, or whoever has its password, sees it: every key of the database."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from scopekv.adapters.objects.urls import Patience
from scopekv.adapters.objects.valkey import OTHER_RETENTION_SECONDS, PREFIX, ValkeyStore
from scopekv.audit.store.media import Found
from scopekv.core.chains import retention_of

_PAGE_KEYS = 500
_NO_KEY, _NO_EXPIRY = -2, -1


class ValkeyMedium:
    """One server or a cluster. Keys of others are listed and not read."""

    kind = "valkey"

    def __init__(self, url: str, patience: Patience) -> None:
        self._store = _Commands(url, patience)
        self.place = self._store.place

    def walk(self) -> Iterator[Found]:
        seen: set[str] = set()
        for page in self._store.pages():
            fresh = [name for name in dict.fromkeys(page) if name not in seen]
            seen.update(fresh)
            ours = [name for name in fresh if name.startswith(PREFIX)]
            yield from (Found(name, 0, is_object=False) for name in fresh if name not in ours)
            yield from self._stats(ours)

    def read(self, name: str, size_bytes_max: int) -> bytes | None:
        content = self._store.run("GETRANGE", name, "0", str(size_bytes_max - 1))
        if content or self._store.run("EXISTS", name):
            return bytes(content)
        return None

    def write(self, name: str, content: bytes) -> None:
        """Keeps the time to live of what was there, else gives it the chain's."""
        if self._store.run("EXISTS", name):
            self._store.run("SET", name, content, "KEEPTTL")
            return
        seconds = retention_of(Found(name, 0).chain) or OTHER_RETENTION_SECONDS
        self._store.run("SET", name, content, "EX", str(seconds))

    def remove(self, name: str) -> None:
        self._store.run("UNLINK", name)

    def close(self) -> None:
        self._store.close()

    def _stats(self, names: Sequence[str]) -> Iterator[Found]:
        for name, (size_bytes, ends_ms) in zip(names, self._store.stats(names), strict=True):
            if ends_ms == _NO_KEY:
                continue  # gone meanwhile
            kept = retention_of(Found(name, 0).chain)
            stored = None if kept is None or ends_ms == _NO_EXPIRY else ends_ms / 1000 - kept
            yield Found(name, size_bytes, stored)


class _Commands(ValkeyStore):
    """The adapter's connection, deadlines and walk, with names that need not be ours.

    Names are Latin-1 text here: one character a byte, whatever the bytes are.
    """

    @property
    def place(self) -> str:
        return f"valkey://{self._place}"

    def run(self, command: str, name: str, *more: str | bytes) -> Any:
        """The server's answer: a number, bytes or None, as the command has it."""
        return self._ask([command, name.encode("latin-1"), *more])

    def stats(self, names: Sequence[str]) -> list[tuple[int, int]]:
        """How long each is, and when it ends: Unix milliseconds, -1 never, -2 not there."""
        if not names:
            return []
        batch = self._batch()
        for name in names:
            batch.strlen(name.encode("latin-1"))
            batch.pexpiretime(name.encode("latin-1"))
        answers = self._run(batch)
        return list(zip(answers[::2], answers[1::2], strict=True))

    def pages(self) -> Iterator[list[str]]:
        """SCAN over all keys, of every primary of a cluster."""
        if not self._cluster:
            yield from self._names(None)
            return
        primaries = set(self._primaries().values())
        yield from itertools.chain.from_iterable(map(self._names, sorted(primaries)))

    def _names(self, server: tuple[str, int] | None) -> Iterator[list[str]]:
        from glide_sync import ByAddressRoute

        route = None if server is None else ByAddressRoute(*server)
        cursor = b"0"
        while True:
            cursor, names = self._ask(["SCAN", cursor, "COUNT", str(_PAGE_KEYS)], route)
            yield [name.decode("latin-1") for name in names]
            if cursor == b"0":
                return
