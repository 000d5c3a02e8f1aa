"""One database, SQLite or PostgreSQL: its connections, its transactions, its errors in our words.

Write transactions run one at a time over all processes (SQLite: BEGIN IMMEDIATE; PostgreSQL: an
advisory lock). Administration is rare; in return no two changes ever interleave, the audit chain
has one order, and there is no deadlock to retry.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DataError, DBAPIError, IntegrityError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from scopekv.errors import ConfigError, Conflict, Misuse, Unavailable

WAIT_SECONDS = 10
CONNECT_SECONDS = 3
WRITE_LOCK = 0x5C09E4B5  # the advisory lock's number: any constant that others do not use

_WRITE = "scopekv_write"
_FORMS = "sqlite:////absolute/path/registry.db or postgresql://USER@HOST/DATABASE"
_SQLITE_TROUBLE = {
    "SQLITE_FULL": "its disk is full; nothing was changed; free some space and try again",
    "SQLITE_IOERR": "its disk fails or is full; nothing was changed; check the disk",
    "SQLITE_READONLY": "it may only be read; nothing was changed; make the file and its folder "
    "writable for this user",
    "SQLITE_BUSY": f"another process kept it locked for {WAIT_SECONDS} s; try again",
    "SQLITE_LOCKED": "another connection keeps it locked; try again",
    "SQLITE_CANTOPEN": "it cannot be opened; check that the folder exists and is readable",
    "SQLITE_CORRUPT": "the file is damaged; stop ScopeKV and put a backup in its place",
    "SQLITE_NOTADB": "the file is no SQLite database; name another, or put a backup in its place",
}


class Database:
    """Connections to one database. Thread-safe. Raises `Unavailable` for what may pass."""

    def __init__(self, engine: Engine, path: Path | None) -> None:
        self.engine = engine
        # Without the query: libpq takes a password there, too.
        self.label = engine.url.set(query={}).render_as_string(hide_password=True)
        self._path = path
        self._file: tuple[int, int] | None = None
        self._snapshots = engine
        self._turn = threading.Lock()
        self._closed = False
        if engine.dialect.name == "postgresql":
            # All reads of one transaction see one commit: no half of a change.
            self._snapshots = engine.execution_options(
                isolation_level="REPEATABLE READ", postgresql_readonly=True
            )

    @property
    def sqlite(self) -> bool:
        return self._path is not None

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A snapshot."""
        with self.translated():
            self.check_file()
            with self._connected(self._snapshots) as connection, connection.begin():
                yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """The one write transaction: commits on leaving, rolls back on an error. Does not nest."""
        # Threads of one process wait here, not in the database, where waiting is not fair.
        with self.translated(), self._one_at_a_time():
            self.check_file()
            writer = self.engine.execution_options(**{_WRITE: True})
            with self._connected(writer) as connection, connection.begin():
                if not self.sqlite:
                    connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({WRITE_LOCK})")
                yield connection

    @contextmanager
    def _connected(self, engine: Engine) -> Iterator[Connection]:
        """A connection of the pool. None once that is closed; one that is out is not put back."""
        if self._closed:
            raise self.unavailable("it is closed")
        with engine.connect() as connection:
            yield connection
            if self._closed:
                connection.detach()

    @contextmanager
    def _one_at_a_time(self) -> Iterator[None]:
        if not self._turn.acquire(timeout=WAIT_SECONDS):
            raise self.unavailable(f"a change has waited {WAIT_SECONDS} s for its turn; try again")
        try:
            yield
        finally:
            self._turn.release()

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Turn the driver's errors into ours; their texts, which may hold values, stay out."""
        try:
            yield
        except IntegrityError as error:
            raise Conflict(
                "the registry refused a change that breaks one of its rules: look again, then retry"
            ) from error
        except (DataError, UnicodeEncodeError) as error:
            raise Misuse("a value holds NUL or half a surrogate pair: no name does") from error
        except PoolTimeout as error:
            raise self.unavailable("all its connections are in use; try again") from error
        except DBAPIError as error:
            raise self.unavailable(self._why(error)) from error

    def unavailable(self, why: str) -> Unavailable:
        return Unavailable(f"registry {self.label}: {why}")

    def _why(self, error: DBAPIError) -> str:
        original = error.orig
        name: str = getattr(original, "sqlite_errorname", "") or ""
        for prefix, words in _SQLITE_TROUBLE.items():
            if name.startswith(prefix):
                return words
        if self.sqlite:
            return f"SQLite failed ({name or type(error).__name__})"
        state: str = getattr(original, "sqlstate", "") or ""
        if error.connection_invalidated or not state or state.startswith("57P"):
            return (
                "it cannot be reached; check that the server runs, then look whether a change "
                "under way was saved before you repeat it"
            )
        return f"PostgreSQL failed (SQLSTATE {state}); see the server's log"

    def check_file(self) -> None:
        """Refuse a registry file that was removed or replaced: old permissions must not live on."""
        if self._path is None:
            return
        try:
            now = os.stat(self._path)
        except OSError as error:
            raise self.unavailable("the file is gone; restore it, then restart") from error
        if self._file is None:
            self._file = (now.st_dev, now.st_ino)
        elif self._file != (now.st_dev, now.st_ino):
            raise self.unavailable("the file was replaced while in use; restart ScopeKV")

    def close(self) -> None:
        """For good: a thread that comes late is told so."""
        self._closed = True
        self.engine.dispose()


def connect(url_text: str) -> Database:
    """Return the database of a registry URL, without touching it beyond its file's mode.

    Raises `ConfigError` for a URL of another form, a folder that cannot be made, or a missing
    driver. A new SQLite file is made with mode 0600; an old one is brought to it.
    """
    try:
        url = make_url(url_text)
    except ArgumentError as error:
        raise ConfigError(f"the registry's URL cannot be read; use {_FORMS}") from error
    if url.drivername == "sqlite":
        return _sqlite(url)
    if url.drivername in ("postgresql", "postgres", "postgresql+psycopg"):
        return _postgresql(url.set(drivername="postgresql+psycopg"))
    raise ConfigError(f"no registry over {url.drivername!r}; use {_FORMS}")


def _sqlite(url: URL) -> Database:
    if not url.database or url.database == ":memory:" or url.query:
        raise ConfigError(f"the registry needs a file; use {_FORMS}")
    path = Path(url.database).absolute()
    _make_private(path)
    engine = create_engine(
        url.set(database=str(path)),
        hide_parameters=True,
        pool_timeout=WAIT_SECONDS,
        connect_args={"check_same_thread": False, "timeout": WAIT_SECONDS},
    )
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return Database(engine, path)


def _make_private(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except FileExistsError:
            if stat.S_IMODE(path.stat().st_mode) & 0o077:
                path.chmod(0o600)  # not by descriptor: closing one drops SQLite's locks
    except OSError as error:
        raise ConfigError(
            f"registry file {path} cannot be made or kept private ({error.strerror}): choose "
            "another folder with --data-dir or --registry, or change its owner"
        ) from error


def _prepare_sqlite(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # the driver must not begin transactions of its own
    for pragma in (
        f"busy_timeout = {WAIT_SECONDS * 1000}",
        "foreign_keys = ON",
        "synchronous = FULL",  # a revocation that returned must outlive a power cut
        "secure_delete = ON",
        "trusted_schema = OFF",
    ):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: Connection) -> None:
    write = connection.get_execution_options().get(_WRITE)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


def _postgresql(url: URL) -> Database:
    wait = WAIT_SECONDS * 1000
    limits: dict[str, Any] = {
        "connect_timeout": CONNECT_SECONDS,
        "application_name": "scopekv",
        "tcp_user_timeout": wait,
        "options": f"-c statement_timeout={wait} -c lock_timeout={wait} "
        f"-c idle_in_transaction_session_timeout={3 * wait}",
    }
    try:
        engine = create_engine(
            url,
            hide_parameters=True,
            pool_pre_ping=True,  # a restarted server costs no request
            pool_timeout=WAIT_SECONDS,
            connect_args={name: v for name, v in limits.items() if name not in url.query},
        )
    except ImportError as error:
        raise ConfigError("PostgreSQL needs its driver: pip install 'scopekv[postgres]'") from error
    return Database(engine, None)
