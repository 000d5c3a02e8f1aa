"""Tallies in a SQLite file of their own; why: docs/decisions/0013-console.md."""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from scopekv.core.tallies import COUNTS, WINDOWS, Place, Tally, Whose, Window
from scopekv.errors import Unavailable

WAIT_SECONDS = 2.0
DROP_SECONDS = 600
_VERSION = 1
_SUMS = ", ".join(f"SUM({name})" for name in COUNTS)
# Clustered by owner first, so that one organisation's page reads its own rows alone.
_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS tallies (
  step INTEGER NOT NULL, whose INTEGER NOT NULL, owner TEXT NOT NULL, start INTEGER NOT NULL,
  instance TEXT NOT NULL, {", ".join(f"{name} INTEGER NOT NULL" for name in COUNTS)},
  PRIMARY KEY (step, whose, owner, start, instance)
) WITHOUT ROWID
"""
_KEYS = "step, whose, owner, start, instance"
_ADD = (
    f"INSERT INTO tallies ({_KEYS}, {', '.join(COUNTS)}) "  # noqa: S608 - names of ours
    f"VALUES ({', '.join('?' * (5 + len(COUNTS)))}) "
    f"ON CONFLICT ({_KEYS}) DO UPDATE SET "
    + ", ".join(f"{name} = {name} + excluded.{name}" for name in COUNTS)
)
log = logging.getLogger("scopekv.tallies")


class SqliteTallies:
    """The port `Tallies`. A file that is none of ours or is damaged is put aside, and made anew."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._dropped_at = float("-inf")

    def add(self, tallies: Mapping[Place, Tally], now: float) -> None:
        """One transaction: rows of every window. At times, what is too old goes with it."""
        rows = [
            (
                *(steps.seconds, int(place.whose), place.owner, steps.start_of(place.start)),
                *(place.instance, *tally.values),
            )
            for steps in WINDOWS.values()
            for place, tally in tallies.items()
        ]
        with self._open() as connection, connection:
            connection.executemany(_ADD, rows)
            if not 0 <= now - self._dropped_at < DROP_SECONDS:
                self._drop(connection, now)
                self._dropped_at = now

    @staticmethod
    def _drop(connection: sqlite3.Connection, now: float) -> None:
        """Reads every row's key, so it is not done with each addition."""
        for steps in WINDOWS.values():
            connection.execute(
                "DELETE FROM tallies WHERE step = ? AND start < ?",
                (steps.seconds, steps.starts(now)[0]),
            )

    def by_start(self, window: Window, now: float, owner: str | None) -> Mapping[int, Tally]:
        """Of all organisations together, or of one."""
        whose = Whose.INSTANCE if owner is None else Whose.ORG
        found = self._sums("start", window, now, whose, owner)
        return {int(start): tally for start, tally in found}

    def of_account(self, window: Window, now: float, owner: str) -> Mapping[int, Tally]:
        found = self._sums("start", window, now, Whose.ACCOUNT, owner)
        return {int(start): tally for start, tally in found}

    def by_owner(self, window: Window, now: float) -> Mapping[str, Tally]:
        """Of organisations."""
        return dict(self._sums("owner", window, now, Whose.ORG, None))

    def by_instance(self, window: Window, now: float, owner: str | None) -> Mapping[str, Tally]:
        """Of all organisations together, or of one."""
        whose = Whose.INSTANCE if owner is None else Whose.ORG_INSTANCE
        return dict(self._sums("instance", window, now, whose, owner))

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _sums(
        self, by: str, window: Window, now: float, whose: Whose, owner: str | None
    ) -> Iterator[tuple[str, Tally]]:
        steps = WINDOWS[window]
        where = "step = ? AND whose = ? AND start >= ?"
        values: list[object] = [steps.seconds, int(whose), steps.starts(now)[0]]
        if owner is not None:
            where += " AND owner = ?"
            values.append(owner)
        with self._open() as connection:
            found = connection.execute(
                f"SELECT {by}, {_SUMS} FROM tallies WHERE {where} GROUP BY {by}",  # noqa: S608
                values,
            ).fetchall()
        return ((row[0], Tally(tuple(row[1:]))) for row in found)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """The connection, for one thread at a time. Raises `Unavailable`."""
        with self._lock:
            try:
                if self._connection is None:
                    self._connection = self._connected()
                yield self._connection
            except sqlite3.DatabaseError as error:
                self._put_aside(error)
                raise Unavailable(f"{self._path}: {error}; its disk may be full") from error
            except OSError as error:
                raise Unavailable(f"{self._path}: {error.strerror}") from error

    def _connected(self) -> sqlite3.Connection:
        self._path.touch(mode=0o600)
        connection = sqlite3.connect(self._path, timeout=WAIT_SECONDS, check_same_thread=False)
        try:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if version not in (0, _VERSION):
                raise sqlite3.DatabaseError(f"it has version {version}, not {_VERSION}")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")  # a crash may cost seconds of counts
            connection.execute(_SCHEMA)
            connection.execute(f"PRAGMA user_version = {_VERSION}")
            connection.commit()
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    def _put_aside(self, error: sqlite3.DatabaseError) -> None:
        """A damaged file would stay so: what it counted is kept beside, for people."""
        if isinstance(error, sqlite3.OperationalError):
            return  # locked, full, out of reach: may pass
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        aside = self._path.with_suffix(".damaged")
        if self._path.exists():
            self._path.replace(aside)
        log.error("%s was damaged (%s); it is now %s", self._path, error, aside.name)
