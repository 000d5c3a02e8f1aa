"""The object directory alone: its owner, its modes, and disks that fail (T8)."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from scopekv.adapters.objects import DirectoryStore, open_store
from scopekv.errors import ConfigError, Unavailable
from scopekv.ports import ObjectKey
from tests.contracts.directory_processes import (
    FORKING,
    HOLDER,
    LIMITED,
    READ_ONLY,
    WRITER,
    run,
    start,
)
from tests.contracts.object_servers import until
from tests.contracts.test_object_stores import BLOCK_BYTES, A, B, every_call, key_in, read

MOUNT, UMOUNT = (shutil.which(name) or "" for name in ("mount", "umount"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "objects"


def test_only_the_owner_may_look(root: Path) -> None:
    store = DirectoryStore(root)
    store.put(key_in(A), [b"x"])
    for path in (root, *root.rglob("*")):
        wanted = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == wanted, path
    store.close()


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_a_root_that_others_may_write_is_refused(root: Path, mode: int) -> None:
    root.mkdir()
    root.chmod(mode)
    with pytest.raises(ConfigError, match="chmod go-w"):
        DirectoryStore(root)


def test_a_corrupt_object_goes_where_the_quarantine_was_taken_away(root: Path) -> None:
    store = DirectoryStore(root)
    key = key_in(A)
    store.put(key, [b"corrupt"])
    (root / ".quarantine").rmdir()
    store.quarantine(key)
    assert store.present([key]) == frozenset()
    store.quarantine(key)
    store.close()


def test_a_link_in_an_objects_place_is_none(root: Path, tmp_path: Path) -> None:
    store = DirectoryStore(root)
    key = key_in(A)
    store.put(key, [b"x"])
    (tmp_path / "elsewhere").write_bytes(b"another file of this user")
    (root / key.chain / key.name).unlink()
    (root / key.chain / key.name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Unavailable):
        read(store, key)
    assert list(store.objects()) == []
    store.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_root_of_another_user_is_refused(root: Path) -> None:
    root.mkdir(mode=0o700)
    os.chown(root, 1234, 1234)
    with pytest.raises(ConfigError, match="belongs to user 1234"):
        DirectoryStore(root)


def test_a_root_that_is_gone_has_not_merely_no_objects(root: Path) -> None:
    """A mount that is missing: what is asked is unknown, and no purge of it is done."""
    store = DirectoryStore(root)
    store.put(key_in(A), [b"x"])
    shutil.rmtree(root)
    for call in every_call(store, key_in(A)):
        with pytest.raises(Unavailable):
            call()
    store.close()


def test_one_live_process_owns_a_root(root: Path) -> None:
    holder = start(HOLDER, root)
    assert holder.stdout is not None
    with holder.stdout:
        assert holder.stdout.readline() == "ready\n"
        with pytest.raises(ConfigError, match=f"in use by process {holder.pid}:"):
            open_store(str(root))
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    store = open_store(str(root))
    with pytest.raises(ConfigError, match=f"process {os.getpid()}:"):
        DirectoryStore(root)
    store.close()
    DirectoryStore(root).close()


def test_a_forked_child_neither_uses_nor_keeps_its_parents_root(root: Path) -> None:
    assert ["in use by process" in line for line in run(FORKING, root)] == [True]
    DirectoryStore(root).close()


def test_a_writer_killed_in_mid_file_leaves_nothing_of_it(root: Path) -> None:
    writer = start(WRITER, root)
    until((root / "chain" / "whole").exists, "the first object is there")
    until(lambda: any((root / ".tmp").iterdir()), "the second is being written")
    writer.send_signal(signal.SIGKILL)
    writer.communicate()
    assert any((root / ".tmp").iterdir())
    store = DirectoryStore(root)
    assert not any((root / ".tmp").iterdir())
    assert [found.key.name for found in store.objects()] == ["whole"]
    store.close()


def test_a_file_that_may_not_grow_is_unavailable_and_leaves_nothing(root: Path) -> None:
    lines = run(LIMITED, root)
    assert len(lines) == 2
    assert all("File too large" in line for line in lines)
    assert not any((root / ".tmp").iterdir())
    assert [path.name for path in (root / "chain").iterdir()] == ["small"]
    assert (root / "chain" / "small").stat().st_size == 1_000_000


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "disk"
    path.mkdir(mode=0o700)
    command = [MOUNT, "-t", "tmpfs", "-o", "size=5m,mode=700", "tmpfs", str(path)]
    if os.geteuid() or not MOUNT or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("may not mount a small disk here")
    yield path
    subprocess.run([UMOUNT, "-l", str(path)], check=True)


def test_a_full_disk_is_unavailable_until_there_is_room(small_disk: Path) -> None:
    store = DirectoryStore(small_disk)
    keys = [key_in(A) for _ in range(4)]
    for key in keys[:3]:
        store.put(key, [b"x" * BLOCK_BYTES])
    for key in (keys[3], keys[0]):
        with pytest.raises(Unavailable, match="No space"):
            store.put(key, [b"y" * 1000, b"y" * BLOCK_BYTES])
    assert not any((small_disk / ".tmp").iterdir())
    assert store.present(keys) == frozenset(keys[:3])
    assert read(store, keys[0], BLOCK_BYTES) == b"x" * BLOCK_BYTES
    assert store.delete(keys[:2]) == 2
    store.put(keys[3], [b"y" * BLOCK_BYTES])
    store.close()


def test_a_disk_mounted_read_only_still_gives(small_disk: Path) -> None:
    store = DirectoryStore(small_disk)
    key = key_in(A)
    store.put(key, [b"kept"])
    subprocess.run([MOUNT, "-o", "remount,ro", str(small_disk)], check=True)
    for call in (every_call(store, key)[n] for n in (0, 3, 7)):
        with pytest.raises(Unavailable, match="Read-only"):
            call()
    store.close()
    again = DirectoryStore(small_disk)
    assert read(again, key) == b"kept"
    subprocess.run([MOUNT, "-o", "remount,rw", str(small_disk)], check=True)
    again.put(key, [b"new"])
    assert read(again, key) == b"new"
    again.close()


def test_without_permission_to_write_reads_go_on() -> None:
    root = Path(tempfile.mkdtemp(prefix="scopekv-objects-"))  # outside pytest's private folder
    try:
        lines = run(READ_ONLY, root)
        assert len(lines) == 7
        assert all("Permission denied" in line for line in lines)
    finally:
        shutil.rmtree(root)


def test_a_root_that_vanishes_is_not_made_again_but_used_when_back(root: Path) -> None:
    store = DirectoryStore(root)
    key = key_in(A)
    store.put(key, [b"x"])
    away = root.with_name("away")
    root.rename(away)
    for call in every_call(store, key):
        with pytest.raises(Unavailable):
            call()
    assert not root.exists()
    away.rename(root)
    assert read(store, key) == b"x"
    shutil.rmtree(root)
    root.mkdir(mode=0o700)
    with pytest.raises(Unavailable):
        store.put(key, [b"x"])  # notices
    store.put(key, [b"y"])
    assert read(store, key) == b"y"
    with pytest.raises(ConfigError, match="in use"):
        DirectoryStore(root)
    store.close()


def test_quarantine_keeps_the_last_sixteen(root: Path) -> None:
    store = DirectoryStore(root)
    keys = [key_in(A if number % 2 else B) for number in range(20)]
    for key in keys:
        store.put(key, [key.name.encode()])
        store.quarantine(key)
    kept = {path.name for path in (root / ".quarantine").iterdir()}
    assert kept == {f"{key.chain}.{key.name}" for key in keys[4:]}
    # Whoever purges a folder purges what was quarantined of it.
    store.delete([ObjectKey(A, "any")])
    kept = {path.name for path in (root / ".quarantine").iterdir()}
    assert kept == {f"{key.chain}.{key.name}" for key in keys[4:] if key.chain == B}
    store.close()


def test_foreign_files_are_neither_listed_nor_touched(root: Path) -> None:
    store = DirectoryStore(root)
    store.put(key_in(A), [b"x"])
    for stray in ("README", "lost+found", f"{A}/.hidden", f"{A}/Upper", "file"):
        (root / stray).write_text("mine")
    assert len(list(store.objects())) == 1
    assert len(list(store.objects("file"))) == 0
    assert (root / A / ".hidden").read_text() == "mine"
    store.close()


def test_empty_folders_go_and_come_back_under_load(root: Path) -> None:
    """A put that meets the removal of its folder still succeeds."""
    store = DirectoryStore(root)

    def work(number: int) -> None:
        key = ObjectKey(A, f"n{number}")
        for _ in range(200):
            store.put(key, [b"x"])
            assert store.delete([key]) == 1

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert not (root / A).exists()
    store.close()


def test_an_empty_file_a_pipe_or_a_folder_in_an_objects_place_is_no_object(tmp_path: Path) -> None:
    store = DirectoryStore(str(tmp_path / "objects"))
    empty, pipe, inner = (ObjectKey("r60-" + "a" * 24, name) for name in ("e1", "e2", "e3"))
    for key in (empty, pipe, inner):
        store.put(key, [b"x"])
        path = tmp_path / "objects" / key.chain / key.name
        path.unlink()
        if key == empty:
            path.touch()
        elif key == pipe:
            os.mkfifo(path)
        else:
            path.mkdir()
    assert {stat.key for stat in store.objects()} == {empty}
    assert store.get(empty, memoryview(bytearray(8))) == 0
    assert store.get(pipe, memoryview(bytearray(8))) is None
    assert store.get(inner, memoryview(bytearray(8))) is None
    assert store.delete([empty, pipe, inner]) == 2
    store.close()
