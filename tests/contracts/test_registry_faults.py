"""The registry when the world fails: restarts, full disks, damaged files, many writers."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from scopekv.adapters.registry import SqlRegistry, open_registry
from scopekv.core.scopes import Audience
from scopekv.errors import ConfigError, Unavailable

PUBLIC = Audience.parse("public")
WRITER = """
import sys
from scopekv.adapters.registry import open_registry
registry = open_registry(sys.argv[1])
for number in range(int(sys.argv[3])):
    with registry.write() as tx:
        tx.orgs.create(f"org-{sys.argv[2]}-{number}")
        tx.audit.append(actor=sys.argv[2], action="a", resource="r", outcome="o", reason="")
registry.close()
"""


def spawn(code: str, *arguments: str, **more: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **more,
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    output, errors = process.communicate(timeout=120)
    return process.returncode, output + errors


def test_processes_open_and_write_at_once(url: str) -> None:
    """A database that does not exist yet, four processes: one makes it, all write, none loses."""
    writers = [spawn(WRITER, url, str(number), "15") for number in range(4)]
    for writer in writers:
        code, output = finish(writer)
        assert code == 0, output
    registry = open_registry(url)
    assert registry.versions().principals == 60
    with registry.read() as view:
        assert len(view.orgs.list("", 100)) == 60
        assert view.audit.verify().seq == 60
    registry.close()


def test_a_writer_killed_in_the_middle_leaves_nothing_half_done(url: str) -> None:
    writer = spawn(WRITER, url, "0", "100000")
    registry = open_registry(url)
    deadline = time.monotonic() + 30
    while registry.versions().principals < 5 and time.monotonic() < deadline:
        time.sleep(0.01)
    writer.send_signal(signal.SIGKILL)
    finish(writer)
    with registry.write() as tx:
        count = len(tx.orgs.list("", 100_000))
        assert tx.audit.verify().seq == count >= 5
        tx.orgs.create("after")
    registry.close()


@pytest.mark.parametrize(
    "bad",
    ["", "nonsense", "mysql://host/db", "sqlite://", "sqlite:///:memory:", "sqlite:////a?mode=ro"],
)
def test_another_url_is_refused_with_the_right_forms(bad: str) -> None:
    with pytest.raises(ConfigError, match=r"sqlite:////absolute/path"):
        open_registry(bad)


def test_an_unreachable_server_is_unavailable_and_its_password_unsaid(tmp_path: Path) -> None:
    with pytest.raises(Unavailable) as caught:
        open_registry("postgresql://scopekv:hunter2@127.0.0.1:1/registry")
    assert "hunter2" not in str(caught.value)
    assert "check that the server runs" in str(caught.value)


def test_a_restarted_server_is_used_again(
    postgres: Any, make_postgres_url: Callable[[], str]
) -> None:
    registry = open_registry(make_postgres_url())
    with registry.write() as tx:
        tx.orgs.create("acme")
    before = registry.versions()
    postgres.stop()
    try:
        for attempt in (registry.versions, registry.versions, lambda: registry.rules("acme")):
            with pytest.raises(Unavailable):
                attempt()
        with pytest.raises(Unavailable), registry.write() as tx:
            tx.orgs.create("lost")
        time.sleep(1.1)
        for words in ("cannot be|counters", "a moment ago"):  # no call, so no request is held up
            with pytest.raises(Unavailable, match=words):
                registry.versions()
    finally:
        postgres.ensure_postgres_running()
    with registry.write() as tx:
        assert [org.name for org in tx.orgs.list("", 10)] == ["acme"]
        tx.orgs.create("globex")
    time.sleep(1.1)  # a refused gateway asks again after a second
    assert registry.versions().principals == before.principals + 1
    registry.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "registry.db"


@pytest.fixture
def sqlite(path: Path) -> SqlRegistry:
    return open_registry(f"sqlite:///{path}")


def test_the_file_is_private(path: Path, sqlite: SqlRegistry) -> None:
    with sqlite.write() as tx:
        tx.orgs.create("acme")
    assert path.parent.stat().st_mode & 0o777 == 0o700
    for file in path.parent.iterdir():
        assert file.stat().st_mode & 0o777 == 0o600, file.name
    path.chmod(0o644)
    sqlite.close()
    open_registry(f"sqlite:///{path}").close()
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_full_disk_loses_nothing(sqlite: SqlRegistry) -> None:
    with sqlite.write() as tx:
        tx.orgs.create("acme")
    before = sqlite.versions()

    def limit(connection: Any, _record: object) -> None:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages + 10}")

    event.listen(sqlite.database.engine, "connect", limit)
    sqlite.database.engine.dispose()

    def overfill() -> None:
        with sqlite.write() as tx:
            tx.orgs.create("globex")
            tx.documents.publish("", "large", PUBLIC, "x" * 1_000_000)

    with pytest.raises(Unavailable, match=r"disk is full; nothing was changed"):
        overfill()
    assert sqlite.versions() == before
    event.remove(sqlite.database.engine, "connect", limit)
    sqlite.database.engine.dispose()
    with sqlite.write() as tx:
        assert [org.name for org in tx.orgs.list("", 10)] == ["acme"]
        tx.documents.publish("", "large", PUBLIC, "x" * 1_000_000)
    sqlite.close()


def test_a_file_size_limit_loses_nothing(path: Path, sqlite: SqlRegistry) -> None:
    """A write that the kernel cuts short (a real failure, in a process of its own)."""
    code = """
import resource, signal, sys
from scopekv.adapters.registry import open_registry
from scopekv.core.scopes import Audience
registry = open_registry(sys.argv[1])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
with registry.write() as tx:
    tx.documents.publish("", "large", Audience.parse("public"), "x" * 1_000_000)
"""
    with sqlite.write() as tx:
        tx.orgs.create("acme")
    status, output = finish(spawn(code, f"sqlite:///{path}"))
    assert status == 1
    assert "Unavailable: registry" in output
    assert "disk" in output.splitlines()[-1]
    assert "xxxxxxxx" not in output
    with sqlite.write() as tx:
        assert [org.name for org in tx.orgs.list("", 10)] == ["acme"]
        assert not tx.documents.list()
    sqlite.close()


def test_a_readonly_folder_is_refused(path: Path, sqlite: SqlRegistry) -> None:
    """As another user, because root may write anywhere."""
    with sqlite.write() as tx:
        tx.orgs.create("acme")
    sqlite.close()
    code = """
import os, sys
from scopekv.adapters.registry import open_registry
from scopekv.errors import ScopeKVError
open_registry(sys.argv[2]).close()  # all modules are loaded while they can be read
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
try:
    open_registry(sys.argv[1])
except ScopeKVError as error:
    print(type(error).__name__, error)
"""
    if os.geteuid() == 0:
        for folder in (path.parent, *path.parent.parents[:4]):
            folder.chmod(0o755)
        os.chown(path, 65534, 65534)
    path.chmod(0o400)
    path.parent.chmod(0o555)
    other = f"sqlite:///{path.parent.parent}/other.db"
    status, output = finish(spawn(code, f"sqlite:///{path}", other))
    path.parent.chmod(0o755)
    assert status == 0, output
    assert output.startswith("ConfigError"), output
    assert "writable" in output or "opened" in output


def test_a_file_that_is_no_database_is_refused(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"not a database, but long enough to look at" * 100)
    with pytest.raises(ConfigError, match="no SQLite database"):
        open_registry(f"sqlite:///{path}")
    assert path.read_bytes().startswith(b"not a database"), "it was left alone"


def test_a_damaged_file_says_so(path: Path, sqlite: SqlRegistry) -> None:
    with sqlite.write() as tx:
        for number in range(300):
            tx.orgs.create(f"org-{number:04}")
    sqlite.close()
    data = bytearray(path.read_bytes())
    data[4096:] = b"\xa5" * (len(data) - 4096)
    path.write_bytes(data)
    with pytest.raises((ConfigError, Unavailable), match="damaged"):
        open_registry(f"sqlite:///{path}").versions()


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_file_taken_away_under_us_refuses(path: Path, sqlite: SqlRegistry, how: str) -> None:
    """The old file would go on answering with yesterday's permissions."""
    sqlite.versions()
    path.rename(path.with_suffix(".old"))
    if how == "replaced":
        open_registry(f"sqlite:///{path}").close()
    for attempt in (sqlite.versions, lambda: sqlite.rules("acme")):
        with pytest.raises(Unavailable, match="gone" if how == "removed" else "replaced"):
            attempt()
    sqlite.close()


def test_a_thread_that_comes_late_does_not_open_a_closed_registry_again(url: str) -> None:
    """One that was reading when it was closed gets its answer; its connection is closed then."""
    registry = open_registry(url)
    registry.versions()
    with registry.read() as view:
        registry.close()
        assert view.orgs.list("", 10) == []
    for act in (registry.versions, registry.read().__enter__, registry.write().__enter__):
        with pytest.raises(Unavailable, match="closed"):
            act()
    gc.collect()  # a connection that was left open warns, and a warning fails the test
