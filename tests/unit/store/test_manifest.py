"""The manifest of a tier: what is written, in which order, and how much of it at most."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from scopekv.adapters.manifest_file import DIGEST_BYTES, read_manifest, write_manifest
from scopekv.core.chains import folder
from scopekv.core.eviction import Entry, ScopedPolicy, Shares
from scopekv.errors import Corrupt, Unavailable
from scopekv.ports import ObjectKey
from scopekv.simulate.sealed_tier import link
from scopekv.store import manifest
from scopekv.store.index import Index

ACCOUNT = b"a" * 16
CHAIN = folder((link("a"),), 3600) or ""


def key(number: int) -> ObjectKey:
    return ObjectKey(CHAIN, f"{number}")


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Index:
    """Ten objects, used in the order 9, 7, 5, 3, 1, 0, 2, 4, 6, 8; sorted by runs of three."""
    monkeypatch.setattr(manifest, "_RUN", 3)
    now = [0.0]
    made = Index(ScopedPolicy(Shares(1000)), 1000, lambda: 1e9, lambda: now[0])
    for number in range(10):
        parent = key(number - 1) if number else None
        assert made.reserve(key(number), Entry(ACCOUNT, parent, number, 10, 0.5)) == []
        assert made.commit(key(number))
        made.is_block(key(number), 2**63 + number)
    for number in (9, 7, 5, 3, 1, 0, 2, 4, 6, 8):
        now[0] += 1
        made.use(key(number), ACCOUNT)
    return made


def test_what_was_written_is_read_the_latest_used_last(index: Index, tmp_path: Path) -> None:
    manifest.save(tmp_path / "m", index)
    noted = manifest.load(tmp_path / "m")
    assert [one.name for one in noted] == list("9753102468")
    assert noted[key(4)] == (Entry(ACCOUNT, key(3), 4, 10, 0.5), 1, 2**63 + 4)
    body = read_manifest(tmp_path / "m")
    assert body is not None
    version, lines = msgspec.msgpack.decode(body)
    assert (version, len(lines)) == (1, 10)


def test_a_manifest_that_would_be_too_long_has_the_latest_used(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest.save(tmp_path / "m", index)
    whole = os.path.getsize(tmp_path / "m") - DIGEST_BYTES
    for module in ("scopekv.store.manifest", "scopekv.adapters.manifest_file"):
        monkeypatch.setattr(f"{module}.SIZE_BYTES_MAX", whole - 1)
    manifest.save(tmp_path / "m", index)
    assert [one.name for one in manifest.load(tmp_path / "m")] == list("753102468")


def test_a_manifest_file_is_read_as_written_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "manifest"
    assert read_manifest(path) is None
    write_manifest(path, [b"body"])
    assert read_manifest(path) == b"body"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(Corrupt):
        read_manifest(path)
    with pytest.raises(Unavailable):
        write_manifest(path / "below a file", [])
    assert list(tmp_path.iterdir()) == [path]


def test_what_a_killed_writer_left_is_written_over(tmp_path: Path) -> None:
    path = tmp_path / "m"
    write_manifest(path, [b"whole"])
    (left,) = {one.name for one in _written_by_a_killed_one(path)} - {"m"}
    assert read_manifest(path) == b"whole"
    write_manifest(path, [b"next ", b"one"])
    assert read_manifest(path) == b"next one"
    assert os.listdir(tmp_path) == ["m"], f"{left} is gone"


def _written_by_a_killed_one(path: Path) -> list[Path]:
    """Fork a writer that is killed in the middle; what lies in the folder then."""
    child = os.fork()
    if child == 0:

        def pieces() -> Iterator[bytes]:
            yield b"half"
            os._exit(9)

        try:
            write_manifest(path, pieces())
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    return list(path.parent.iterdir())


def test_trouble_leaves_the_old_manifest_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "m"
    write_manifest(path, [b"old"])

    def full() -> Iterator[bytes]:
        yield b"some"
        raise OSError(28, "No space left on device")

    with pytest.raises(Unavailable, match="No space"):
        write_manifest(path, full())
    assert read_manifest(path) == b"old"
    assert os.listdir(tmp_path) == ["m"]
