"""The media that a thief reads: everything that lies there, under its own name, ours or not.

The object stores' own adapters hide what is not theirs, and a directory's claims the directory.
A thief does neither.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from scopekv.adapters.objects.claim import QUARANTINE, TEMPORARY
from scopekv.adapters.objects.urls import Patience
from scopekv.core.chains import tags_of
from scopekv.errors import ConfigError
from scopekv.store.janitor import PROBE_FOLDER

_PATIENCE = Patience(connect_seconds=5.0, call_seconds=30.0)
MANIFEST = "tier-manifest"
_ASIDE = frozenset({QUARANTINE, TEMPORARY, PROBE_FOLDER})
_SEPARATORS = re.compile(r"[/:]")


@dataclass(frozen=True, slots=True)
class Found:
    """One thing in a store. `stored_at`: Unix seconds by the store's clock, where it tells.

    `mode`, `uid`: of a file or folder. `is_object`: False for folders, locks, and keys of others.
    """

    name: str
    size_bytes: int
    stored_at: float | None = None
    mode: int | None = None
    uid: int | None = None
    is_folder: bool = False
    is_object: bool = True

    @property
    def parts(self) -> list[str]:
        return _SEPARATORS.split(self.name)

    @property
    def is_block(self) -> bool:
        """Whether it may hold blocks: no manifest, nothing unfinished, set aside or tried out."""
        return not _ASIDE.intersection(self.parts) and MANIFEST not in self.leaf

    @property
    def leaf(self) -> str:
        """The last part of its name."""
        return self.parts[-1]

    @property
    def folder(self) -> str:
        """The name of what it lies in; empty for the root."""
        return self.name[: -len(self.leaf) - 1]

    @property
    def tags(self) -> bool:
        """Whether it is the folder of a scope chain."""
        return bool(tags_of(self.leaf))

    @property
    def chain(self) -> str:
        """The folder of a scope chain that it lies in; empty if in none."""
        parts = self.parts
        return parts[-2] if len(parts) > 1 and tags_of(parts[-2]) else ""


class Medium(Protocol):
    """One store as a thief has it. Blocking. Every call may raise `Unavailable`.

    `place` names it without credentials. Nothing is changed but by `write` and `remove`.
    """

    kind: str
    place: str

    def walk(self) -> Iterator[Found]:
        """All that lies there now, in any order."""
        ...

    def read(self, name: str, size_bytes_max: int) -> bytes | None:
        """The first bytes of it; None if there is no such thing."""
        ...

    def write(self, name: str, content: bytes) -> None:
        """Put it there whole, in the place of what was there."""
        ...

    def remove(self, name: str) -> None:
        """An absent one is no error."""
        ...

    def close(self) -> None: ...


def open_medium(location: str) -> Medium:
    """Open what a location names, see `StoreTarget`. Raises `ConfigError`, without the location."""
    from scopekv.audit.store.files import DirectoryMedium

    kind, _, path = location.partition("=")
    if kind == "directory" and path:
        return DirectoryMedium(Path(path).expanduser().absolute())
    scheme = urlsplit(location).scheme
    if scheme == "file":
        return DirectoryMedium(Path(unquote(urlsplit(location).path)))
    try:
        if scheme == "valkey":
            from scopekv.audit.store.valkey import ValkeyMedium

            return ValkeyMedium(location, _PATIENCE)
        if scheme == "s3":
            from scopekv.audit.store.bucket import BucketMedium

            return BucketMedium(location, _PATIENCE)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"a {scheme}:// store needs the package {error.name}: pip install 'scopekv[{scheme}]'"
        ) from error
    raise ConfigError("a store to audit is directory=/path, valkey://HOST:PORT or s3://BUCKET")
