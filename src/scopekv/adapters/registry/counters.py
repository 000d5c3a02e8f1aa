"""The counters a gateway compares before every request: one row, over one kept connection.

SQLAlchemy costs more than the read itself, so the driver's own connection is used. Measured here:
SQLite 12 to 16 microseconds, PostgreSQL over a socket 52; one read through SQLAlchemy 225.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from scopekv.adapters.registry.database import Database
from scopekv.errors import Unavailable
from scopekv.ports import Versions

_SELECT = "SELECT principals, documents, rules, epochs FROM scopekv_state"
_PAUSE_SECONDS = 1.0


class Counters:
    """Reads `Versions`. Thread-safe: calls take turns."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._connection: Any = None
        self._turn = threading.Lock()
        self._failed_at = float("-inf")
        self._closed = False  # for good: a thread that comes late must not connect again

    def read(self) -> Versions:
        """Return the counters as of the last commit. Raises `Unavailable`.

        A broken connection is made anew once; while that fails, callers are refused at once for a
        second, so that a dead server does not stall an event loop at every request.
        """
        self._database.check_file()
        with self._turn:
            if self._connection is None:
                return self._fresh()
            try:
                return self._select()
            except Exception as error:
                self._drop()
                if not self._is_driver_error(error):
                    raise
                return self._fresh()

    def close(self) -> None:
        with self._turn:
            self._closed = True
            self._drop()

    def _fresh(self) -> Versions:
        if self._closed:
            raise self._database.unavailable("it is closed")
        if time.monotonic() - self._failed_at < _PAUSE_SECONDS:
            raise self._database.unavailable("it could not be reached a moment ago")
        try:
            with self._database.translated():
                self._connection = self._connect()
            return self._select()
        except Exception as error:
            self._drop()
            self._failed_at = time.monotonic()
            if isinstance(error, Unavailable) or not self._is_driver_error(error):
                raise
            raise self._database.unavailable("its counters cannot be read") from error

    def _connect(self) -> Any:
        fairy = self._database.engine.raw_connection()
        connection: Any = fairy.dbapi_connection
        fairy.detach()  # ours to close, so that the pool does not count it
        if not self._database.sqlite:
            connection.autocommit = True
        return connection

    def _select(self) -> Versions:
        row = self._connection.execute(_SELECT).fetchone()
        if row is None:
            raise self._database.unavailable("its counters are missing; restore a backup")
        return Versions(*row)

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.close()
            except Exception as error:
                if not self._is_driver_error(error):
                    raise

    def _is_driver_error(self, error: Exception) -> bool:
        driver: Any = self._database.engine.dialect.dbapi
        return isinstance(error, (driver.Error, SQLAlchemyError))
