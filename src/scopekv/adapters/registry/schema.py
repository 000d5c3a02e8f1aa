"""Bringing a database to the schema this version knows. Safe from several processes at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from alembic.config import Config
from alembic.runtime.environment import EnvironmentContext
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from scopekv.adapters.folder_lock import alone
from scopekv.adapters.registry.database import Database
from scopekv.errors import ConfigError, Unavailable

VERSION_TABLE = "scopekv_schema"


def scripts() -> ScriptDirectory:
    """The migrations shipped in this package."""
    return ScriptDirectory(str(Path(__file__).with_name("migrations")))


def upgrade(database: Database, target: str = "head") -> None:
    """Bring the schema to `target`, in one transaction under the write lock.

    After: the schema is at `target`, or, on an error, as it was. Cost when nothing is to do: one
    look. Raises `ConfigError` for a schema newer than this version, or a file that is no registry;
    `Unavailable` for a database out of reach.
    """
    try:
        if database.sqlite:
            _use_wal(database)
        with database.read() as connection:
            revision = _revision(connection)
        if _is_current(revision, target):
            return
        with database.write() as connection:
            _run(connection, target)
    except Unavailable as error:
        cause: Any = error.__cause__
        name = getattr(getattr(cause, "orig", None), "sqlite_errorname", "") or ""
        if name.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT", "SQLITE_READONLY", "SQLITE_CANT")):
            raise ConfigError(str(error)) from error
        raise


def _is_current(revision: str | None, target: str) -> bool:
    directory = scripts()
    known = {script.revision for script in directory.walk_revisions()}
    if revision is not None and revision not in known:
        raise ConfigError(
            f"the registry's schema is {revision}, made by a newer ScopeKV; this one knows "
            f"{directory.get_current_head()}: install the newer ScopeKV, or restore a backup"
        )
    return revision == (directory.get_current_head() if target == "head" else target)


def _revision(connection: Connection) -> str | None:
    context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
    return context.get_current_revision()


def _run(connection: Connection, target: str) -> None:
    directory = scripts()
    if _is_current(_revision(connection), target):
        return  # another process was first

    def steps(revision: Any, _context: MigrationContext) -> Any:
        return directory._upgrade_revs(target, revision)  # as alembic's own upgrade command does

    with EnvironmentContext(Config(), directory, fn=steps, destination_rev=target) as environment:
        environment.configure(connection=connection, version_table=VERSION_TABLE)
        environment.run_migrations()


def _use_wal(database: Database) -> None:
    """Write-ahead logging is a lasting property of the file; switching to it takes it alone."""
    with database.translated():
        database.check_file()
        with database.engine.connect() as connection:
            raw: Any = connection.connection.dbapi_connection
            if raw.execute("PRAGMA journal_mode").fetchone()[0] == "wal":
                return
            with alone(Path(database.engine.url.database or ".").parent):
                mode = raw.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        raise ConfigError(
            f"registry {database.label}: its file system cannot do write-ahead logging; choose a "
            "folder on a local disk with --data-dir or --registry"
        )
