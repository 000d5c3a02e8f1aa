"""What of an index outlives a restart: recency, uses, accounts, blocks. Never what exists."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from scopekv.adapters.manifest_file import SIZE_BYTES_MAX, read_manifest, write_manifest
from scopekv.core.eviction import Entry
from scopekv.errors import Corrupt, Misuse
from scopekv.ports import ObjectKey
from scopekv.store.index import Index
from scopekv.store.records import Record

VERSION = 1
_RUN = 10_000  # lines that are sorted in one call
_ENCODER = msgspec.msgpack.Encoder()


class _Line(msgspec.Struct, array_like=True, frozen=True):
    chain: str
    name: str
    account: bytes
    parent: tuple[str, str] | None
    depth: int
    size_bytes: int
    cost: float
    uses: int
    block: int | None = None  # its short hash; manifests of before have none


class _Manifest(msgspec.Struct, array_like=True, frozen=True):
    version: int
    lines: list[_Line]  # least recently used first


Noted = dict[ObjectKey, tuple[Entry[ObjectKey], int, int | None]]  # entry, uses, block


def save(path: Path, index: Index) -> None:
    """Write the index down in one step. `Unavailable` where that is not possible.

    The latest used are written as far as a manifest may be long. Line by line, so that the
    scheduler's thread is never kept waiting: encoding a million lines in one call takes a second.
    """
    records, blocks = index.records(), index.residents.all()
    lines: list[bytes] = []
    left = SIZE_BYTES_MAX - len(_head(0))
    for key in _latest_first(records):
        line = _ENCODER.encode(_line(key, records[key], blocks.get(key)))
        left -= len(line)
        if left < 0:
            break
        lines.append(line)
    write_manifest(path, itertools.chain((_head(len(lines)),), reversed(lines)))


def _latest_first(records: Mapping[ObjectKey, Record]) -> Iterator[ObjectKey]:
    def used_at(key: ObjectKey) -> float:
        return records[key].used_at

    keys = list(records)
    runs = [
        sorted(keys[start : start + _RUN], key=used_at, reverse=True)
        for start in range(0, len(keys), _RUN)
    ]
    return heapq.merge(*runs, key=used_at, reverse=True)


def _line(key: ObjectKey, record: Record, block: int | None) -> _Line:
    entry, parent = record.entry, record.entry.parent
    named = None if parent is None else (parent.chain, parent.name)
    values = (entry.account, named, entry.depth, entry.size_bytes, entry.cost, record.uses)
    return _Line(key.chain, key.name, *values, block)


def _head(count: int) -> bytes:
    """What comes before the lines in a `_Manifest` of so many (MessagePack: array 32)."""
    return b"\x92" + _ENCODER.encode(VERSION) + b"\xdd" + count.to_bytes(4, "big")


def load(path: Path) -> Noted:
    """Read what `save` wrote, least recently used first; nothing where there is no file.

    Raises `Corrupt` for anything else, `Unavailable` where it cannot be read.
    """
    body = read_manifest(path)
    if body is None:
        return {}
    try:
        manifest = msgspec.msgpack.decode(body, type=_Manifest)
        if manifest.version != VERSION:
            raise Corrupt(f"the manifest has version {manifest.version}, not {VERSION}")
        return {
            ObjectKey(line.chain, line.name): (
                Entry(
                    line.account,
                    None if line.parent is None else ObjectKey(*line.parent),
                    line.depth,
                    line.size_bytes,
                    line.cost,
                ),
                line.uses,
                line.block,
            )
            for line in manifest.lines
        }
    except (msgspec.MsgspecError, Misuse) as error:
        raise Corrupt("the manifest is none") from error
