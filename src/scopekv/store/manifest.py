"""What of an index outlives a restart: recency, uses, accounts, blocks. Never what exists."""

from __future__ import annotations

from pathlib import Path

import msgspec

from scopekv.adapters.manifest_file import read_manifest, write_manifest
from scopekv.core.eviction import Entry
from scopekv.errors import Corrupt, Misuse
from scopekv.ports import ObjectKey
from scopekv.store.index import Index

VERSION = 1


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
    """Write the index down in one step. `Unavailable` where that is not possible."""
    records, blocks = index.records(), index.residents.all()
    order = sorted(records, key=lambda key: records[key].used_at)
    lines = []
    for key in order:
        record = records[key]
        entry, parent = record.entry, record.entry.parent
        named = None if parent is None else (parent.chain, parent.name)
        values = (entry.account, named, entry.depth, entry.size_bytes, entry.cost, record.uses)
        lines.append(_Line(key.chain, key.name, *values, blocks.get(key)))
    write_manifest(path, msgspec.msgpack.encode(_Manifest(VERSION, lines)))


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
