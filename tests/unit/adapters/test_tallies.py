"""Tallies on disk: what was added is there, no more and no less, and trouble is survived."""

from __future__ import annotations

import sqlite3
import stat
from pathlib import Path

import pytest

from scopekv.adapters.tallies import SqliteTallies
from scopekv.core.tallies import WINDOWS, Place, Tally, Window, places
from scopekv.errors import Unavailable

NOW = 1_800_000_000.0
ONE = Tally.of(requests=1, input_tokens=100, cached_tokens=50)


def requests(count: int, *, org: str, at: float = NOW, instance: str = "e-0") -> dict[Place, Tally]:
    minute = WINDOWS[Window.HOUR].start_of(at)
    tally = Tally(tuple(count * value for value in ONE.values))
    return dict.fromkeys(places(minute, org=org, account=f"usr_{org}", instance=instance), tally)


@pytest.fixture
def tallies(tmp_path: Path) -> SqliteTallies:
    return SqliteTallies(tmp_path / "tallies.db")


def test_what_is_added_is_told_by_every_question(tallies: SqliteTallies) -> None:
    tallies.add(requests(3, org="acme"), NOW)
    tallies.add(requests(4, org="acme", instance="e-1"), NOW)
    tallies.add(requests(5, org="globex"), NOW)
    for window in Window:
        start = WINDOWS[window].start_of(NOW)
        assert tallies.by_start(window, NOW, None)[start]["requests"] == 12
        assert tallies.by_start(window, NOW, "acme")[start]["requests"] == 7
        assert tallies.of_account(window, NOW, "usr_globex")[start]["input_tokens"] == 500
        by_owner = tallies.by_owner(window, NOW)
        assert {org: one["requests"] for org, one in by_owner.items()} == {"acme": 7, "globex": 5}
        by_instance = tallies.by_instance(window, NOW, None)
        assert {name: one["requests"] for name, one in by_instance.items()} == {"e-0": 8, "e-1": 4}
        own = tallies.by_instance(window, NOW, "acme")
        assert {name: one["requests"] for name, one in own.items()} == {"e-0": 3, "e-1": 4}
    assert tallies.by_start(Window.DAY, NOW, "nobody") == {}
    tallies.close()


def test_it_is_there_after_a_restart_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "tallies.db"
    first = SqliteTallies(path)
    first.add(requests(2, org="acme"), NOW)
    first.close()
    again = SqliteTallies(path)
    assert again.by_owner(Window.DAY, NOW)["acme"]["requests"] == 2
    again.close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_what_is_older_than_its_window_goes(tmp_path: Path) -> None:
    path = tmp_path / "tallies.db"
    tallies = SqliteTallies(path)
    tallies.add(requests(1, org="acme"), NOW)
    later = NOW + 40 * 86_400
    tallies.add(requests(1, org="acme", at=later), later)
    for window in Window:
        found = tallies.by_owner(window, later)
        assert found["acme"]["requests"] == 1
    tallies.close()
    with sqlite3.connect(path) as connection:
        (rows,) = connection.execute("SELECT COUNT(*) FROM tallies").fetchone()
    connection.close()
    assert rows == len(WINDOWS) * 4


def test_a_damaged_file_is_put_aside(tmp_path: Path) -> None:
    path = tmp_path / "tallies.db"
    path.write_bytes(b"no database at all" * 1000)
    tallies = SqliteTallies(path)
    with pytest.raises(Unavailable):
        tallies.by_owner(Window.DAY, NOW)
    tallies.add(requests(1, org="acme"), NOW)
    assert tallies.by_owner(Window.DAY, NOW)["acme"]["requests"] == 1
    assert path.with_suffix(".damaged").exists()
    tallies.close()


def test_a_folder_that_is_gone_is_unavailable(tmp_path: Path) -> None:
    tallies = SqliteTallies(tmp_path / "gone" / "tallies.db")
    with pytest.raises(Unavailable):
        tallies.add(requests(1, org="acme"), NOW)
