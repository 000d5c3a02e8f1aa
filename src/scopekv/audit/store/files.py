"""A directory of objects as whoever copied the disk has it: no lock is taken, nothing is made."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from scopekv.adapters.objects.claim import LOCK
from scopekv.audit.store.media import Found
from scopekv.errors import ConfigError, Unavailable

NEW_FILE_MODE = 0o600
NEW_FOLDER_MODE = 0o700


class DirectoryMedium:
    """Everything below one folder: the folders of instances, what they quarantined, manifests."""

    kind = "directory"

    def __init__(self, root: Path) -> None:
        """Raises `ConfigError` where there is no such folder."""
        if not root.is_dir():
            raise ConfigError(f"there is no directory {root} to audit")
        self._root = root
        self.place = str(root)

    def walk(self) -> Iterator[Found]:
        """The root first. Symbolic links are shown and not followed."""
        yield from self._shown(self._root, "", is_folder=True)
        for folder, folders, files in os.walk(self._root):
            here = Path(folder)
            for name in (*folders, *files):
                path = here / name
                relative = str(path.relative_to(self._root))
                yield from self._shown(path, relative, is_folder=name in folders)

    def read(self, name: str, size_bytes_max: int) -> bytes | None:
        try:
            handle = os.open(self._root / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno == errno.ELOOP:  # a link: seen, and not followed
                return None
            raise self._trouble(error) from error
        with os.fdopen(handle, "rb") as file:
            try:
                return file.read(size_bytes_max)
            except OSError as error:
                raise self._trouble(error) from error

    def write(self, name: str, content: bytes) -> None:
        """By rename, so that no reader sees a part; with the mode of what was there."""
        path = self._root / name
        temporary = path.with_name(f".{path.name}.audit")
        try:
            mode = NEW_FILE_MODE
            with contextlib.suppress(FileNotFoundError):
                mode = stat.S_IMODE(path.stat().st_mode)
            path.parent.mkdir(mode=NEW_FOLDER_MODE, exist_ok=True)
            handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            temporary.replace(path)
        except OSError as error:
            raise self._trouble(error) from error

    def remove(self, name: str) -> None:
        try:
            (self._root / name).unlink(missing_ok=True)
        except OSError as error:
            raise self._trouble(error) from error

    def close(self) -> None:
        """Nothing is held."""

    def _shown(self, path: Path, relative: str, *, is_folder: bool) -> Iterator[Found]:
        with contextlib.suppress(FileNotFoundError):  # gone meanwhile
            status = path.lstat()
            is_object = not is_folder and path.name != LOCK
            yield Found(
                relative,
                0 if is_folder else status.st_size,
                status.st_mtime,
                status.st_mode,
                status.st_uid,
                is_folder,
                is_object,
            )

    def _trouble(self, error: OSError) -> Unavailable:
        return Unavailable(f"the directory {self._root}: {error.strerror or 'failed'}")
