"""Where sealed objects lie: a directory, Valkey, S3. All decide nothing and open nothing."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

from scopekv.adapters.objects.directory import DirectoryStore
from scopekv.adapters.objects.urls import CALL_SECONDS, CONNECT_SECONDS, Patience, split
from scopekv.errors import ConfigError
from scopekv.ports import ObjectStore

__all__ = ["CALL_SECONDS", "CONNECT_SECONDS", "DirectoryStore", "open_store"]


def open_store(
    url: str, *, connect_seconds: float = CONNECT_SECONDS, call_seconds: float = CALL_SECONDS
) -> ObjectStore:
    """Open the store that a URL names; the time limits are for those across a network.

        /path or file:///path
        valkey://[user:password@]host[:port]/[database][?cluster=true][&tls=true]
        s3://bucket[/prefix][?endpoint=http://host:port][&region=...]
            [&access_key_id=...&secret_access_key=...[&session_token=...]]

    A store that is out of reach opens, and its calls raise `Unavailable` until it is back. Raises
    `ConfigError` for a URL that cannot work, a directory that is unsafe or in use by another live
    process, and a client library that is not installed. No error repeats a password or key.
    """
    patience = Patience(connect_seconds, call_seconds)
    scheme, found, _ = url.partition("://")
    if not found:
        return _directory(url)
    if scheme == "file":
        return _directory(unquote(_local(url)))
    try:
        if scheme == "valkey":
            from scopekv.adapters.objects.valkey import ValkeyStore

            return ValkeyStore(url, patience)
        if scheme == "s3":
            from scopekv.adapters.objects.s3 import S3ObjectStore

            return S3ObjectStore(url, patience)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"a {scheme}:// store needs the package {error.name}: pip install 'scopekv[{scheme}]'"
        ) from error
    raise ConfigError("an object store is a path, or a file://, valkey:// or s3:// URL")


def _local(url: str) -> str:
    parts = split(url)
    if parts.netloc or parts.query or not parts.path:
        raise ConfigError("a file URL is file:///path, with three slashes")
    return parts.path


def _directory(path: str) -> DirectoryStore:
    if not Path(path).is_absolute():
        raise ConfigError("an object store is a path that begins with /, or a URL with ://")
    return DirectoryStore(path)
