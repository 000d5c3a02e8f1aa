"""Case T8: killed writers, full and read-only stores, missing permissions."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from scopekv.simulate.object_store import SimulatedObjectStore
from scopekv.simulate.sealed_tier import TierStage, link
from scopekv.store.tier import Block
from tests.cases.conftest import SERVERS, Start
from tests.cases.test_tier_cases import ABSENT, PRESENT, assert_loads, stored
from tests.cases.tier_places import OBJECT_BYTES, DirectoryPlace, Place, ServerPlace
from tests.contracts.object_servers import ValkeyServers

MOUNT, UMOUNT = (shutil.which(name) or "" for name in ("mount", "umount"))
WRITER = """
import sys
from scopekv.adapters.objects import open_store
from scopekv.simulate.sealed_tier import TierStage, link, small_settings
settings = small_settings(shared=sys.argv[2] == "shared")
stage = TierStage(open_store(sys.argv[1], call_seconds=10.0), settings=settings).ready()
chain = stage.grant(link("user"))
number = 0
while True:
    stage.store(*[stage.block(chain, str(number + i)) for i in range(8)])
    number += 8
    print(number, flush=True)
"""
LIMITED = """
import resource, sys
from scopekv.adapters.objects import DirectoryStore
from scopekv.simulate.sealed_tier import TierStage, link, small_settings
stage = TierStage(DirectoryStore(sys.argv[1]), settings=small_settings()).ready()
chain = stage.grant(link("user"))
kept, lost = stage.block(chain, "kept"), stage.block(chain, "lost")
assert stage.store(kept).ok == (0,)
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (3000, hard))
assert stage.store(lost).ok == ()
assert stage.tier.counters()["writes_suspended"] == 1
assert stage.load(stage.empty(kept)).ok == (0,), "it still serves"
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
stage.until(lambda: not stage.tier.counters()["writes_suspended"])
assert stage.store(lost).ok == (0,)
assert len(stage.load(stage.empty(kept), stage.empty(lost)).ok) == 2
stage.close()
"""
# As root, modes stop nobody: become nobody after the imports.
NO_PERMISSION = """
import os, sys
from pathlib import Path
from scopekv.adapters.objects import DirectoryStore
from scopekv.simulate.sealed_tier import TierStage, link, small_settings
from scopekv.store.tier import Presence
root = Path(sys.argv[1])
if os.geteuid() == 0:
    os.chown(root, 65534, 65534)
    os.setgid(65534)
    os.setuid(65534)
def begin():
    settings = small_settings()
    stage = TierStage(DirectoryStore(root), settings=settings).ready()
    return stage, stage.grant(link("user"))
def check(stage, chain):
    kept, lost = stage.block(chain, "kept"), stage.block(chain, "lost")
    assert stage.store(lost).ok == ()
    assert stage.tier.counters()["writes_suspended"] == 1
    assert stage.lookup(kept, lost) == [Presence.PRESENT, Presence.ABSENT]
    assert stage.load(stage.empty(kept)).ok == (0,), "it still serves"
stage, chain = begin()
kept, lost = stage.block(chain, "kept"), stage.block(chain, "lost")
assert stage.store(kept).ok == (0,)
(path,) = root.glob("r*/*")
folders = [root / ".tmp", path.parent, root / ".quarantine", root]
for folder in folders:
    folder.chmod(0o500)
check(stage, chain)
stage.close()
stage, chain = begin()
check(stage, chain)
for folder in reversed(folders):
    folder.chmod(0o700)
stage.until(lambda: not stage.tier.counters()["writes_suspended"])
assert stage.store(lost).ok == (0,)
path.chmod(0)
assert stage.load(stage.empty(kept)).ok == (), "no permission to read: a miss"
path.chmod(0o600)
stage.until(lambda: stage.lookup(kept) == [Presence.PRESENT])
assert len(stage.load(stage.empty(kept), stage.empty(lost)).ok) == 2
assert stage.tier.counters()["corrupt"] == 0
stage.close()
"""


def run(code: str, root: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", code, str(root)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("place", ["directory", *SERVERS], indirect=True)
def test_t8_kill_9_in_the_middle_of_a_store(place: Place, start: Start, tmp_path: Path) -> None:
    url = place.url if isinstance(place, ServerPlace) else str(tmp_path / "objects")
    shared = "shared" if place.shared else "alone"
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, url, shared], stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    said = 0
    while said < 200:
        said = int(writer.stdout.readline())
    writer.send_signal(signal.SIGKILL)
    writer.wait(10)
    with writer.stdout:  # it was ahead of what was read of it
        said += 8 * writer.stdout.read().count("\n")

    stage = start()
    chain = stage.grant(link("user"))
    blocks = [stage.block(chain, str(i)) for i in range(said + 16)]
    there = [b for b, at in zip(blocks, stage.lookup(*blocks), strict=True) if at is PRESENT]
    assert there[:said] == blocks[:said], "what was said to be kept is there"
    assert len(place.names()) == len(there)
    assert place.used_bytes() == len(there) * OBJECT_BYTES, "no partial object is visible"
    slots = [stage.empty(block) for block in there]
    assert len(stage.load(*slots).ok) == len(there)
    assert [slot.view for slot in slots] == [block.view for block in there]
    assert stage.tier.counters()["corrupt"] == 0
    if isinstance(place, DirectoryPlace):
        assert list((place.root / ".tmp").iterdir()) == []


@contextlib.contextmanager
def no_room(place: Place, stage: TierStage) -> Iterator[None]:
    """The store is full, in its own way, until the end."""
    if isinstance(place, ServerPlace):
        assert isinstance(place.servers, ValkeyServers)
        port = place.servers.ports[0]
        place.servers.ask(port, "CONFIG SET maxmemory 1mb")
        yield
        place.servers.ask(port, "CONFIG SET maxmemory 0")
    else:
        assert isinstance(stage.store_, SimulatedObjectStore)
        stage.store_.conduct.capacity_bytes = 1.5 * OBJECT_BYTES
        yield
        stage.store_.conduct.capacity_bytes = float("inf")


def assert_serves_but_keeps_nothing(stage: TierStage, kept: Block, lost: Block) -> None:
    assert stage.store(lost).ok == ()
    counters = stage.tier.counters()
    assert (counters["writes_suspended"], counters["suspended"]) == (1, 0)
    assert stage.lookup(kept, lost) == [PRESENT, ABSENT]
    assert_loads(stage, kept)


def assert_keeps_again(stage: TierStage, *blocks: Block) -> None:
    stage.until(lambda: not stage.tier.counters()["writes_suspended"])
    for block in blocks:
        assert stage.store(block).ok == (0,)
        assert_loads(stage, block)


@pytest.mark.parametrize("place", ["simulated", SERVERS[0]], indirect=True)
def test_t8_a_full_store(place: Place, start: Start) -> None:
    stage = start()
    chain = stage.grant(link("user"))
    kept, lost = stage.block(chain, "kept"), stage.block(chain, "lost")
    stored(place, stage, kept)
    with no_room(place, stage):
        assert_serves_but_keeps_nothing(stage, kept, lost)
    assert_keeps_again(stage, kept, lost)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "disk"
    path.mkdir(mode=0o700)
    command = [MOUNT, "-t", "tmpfs", "-o", "size=64k,mode=700", "tmpfs", str(path)]
    if os.geteuid() or not MOUNT or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("may not mount a small disk here")
    yield path
    subprocess.run([UMOUNT, "-l", str(path)], check=True)


@pytest.mark.parametrize("place", ["directory"], indirect=True)
@pytest.mark.parametrize("trouble", ["full", "read-only"])
def test_t8_a_disk_that_takes_nothing_more(
    place: Place, start: Start, small_disk: Path, trouble: str
) -> None:
    disk = DirectoryPlace(small_disk)
    stage = start(disk.open())
    chain = stage.grant(link("user"))
    kept, lost = stage.block(chain, "kept"), stage.block(chain, "lost")
    stored(disk, stage, kept)
    filling = small_disk / "filling"
    if trouble == "full":
        with contextlib.suppress(OSError), open(filling, "wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass
    else:
        subprocess.run([MOUNT, "-o", "remount,ro", str(small_disk)], check=True)
    assert_serves_but_keeps_nothing(stage, kept, lost)
    assert len(disk.names()) == 1
    stage.close()
    again = start(disk.open())  # the next start on such a disk
    again.grant(link("user"))
    assert_serves_but_keeps_nothing(again, kept, lost)
    if trouble == "full":
        filling.unlink()
    else:
        subprocess.run([MOUNT, "-o", "remount,rw", str(small_disk)], check=True)
    assert_keeps_again(again, kept, lost)
    assert list((small_disk / ".tmp").iterdir()) == []
    again.close()


def test_t8_files_that_may_not_grow(tmp_path: Path) -> None:
    run(LIMITED, tmp_path / "objects")
    assert list((tmp_path / "objects" / ".tmp").iterdir()) == []


def test_t8_no_permission_to_write_and_none_to_read() -> None:
    root = Path(tempfile.mkdtemp(prefix="scopekv-objects-"))  # outside pytest's private folder
    try:
        run(NO_PERMISSION, root)
    finally:
        shutil.rmtree(root)
