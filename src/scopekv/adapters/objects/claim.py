"""One live owner for a directory of objects: a locked file in it, and folders for its own use."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from dataclasses import dataclass

from scopekv.errors import ConfigError

LOCK = ".lock"
TEMPORARY = ".tmp"
QUARANTINE = ".quarantine"
_READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to use a root. The kernel ends it with the process, however that dies."""

    handle: int

    def release(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self.handle)


def claim(root: str) -> Claim:
    """Lock `root`, make the folders in it, and remove what dead writers left unfinished.

    Raises `ConfigError` where another live process has the root, or others may write into it;
    OSError where it cannot be used now. A read-only root that was in use before can be claimed.
    """
    _refuse_unsafe(root)
    path = os.path.join(root, LOCK)
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        handle = os.open(path, flags | os.O_CREAT, 0o600)
    except OSError as error:
        if error.errno not in _READ_ONLY:
            raise
        handle = os.open(path, flags)
    try:
        _lock(root, handle)
        _prepare(root)
    except BaseException:
        os.close(handle)
        raise
    return Claim(handle)


def _refuse_unsafe(root: str) -> None:
    status = os.stat(root)
    mode = status.st_mode & 0o777
    if mode & 0o022:
        raise ConfigError(
            f"others may write into the object directory {root} (mode {mode:o}): chmod go-w it"
        )
    if status.st_uid not in (os.geteuid(), 0):
        raise ConfigError(
            f"the object directory {root} belongs to user {status.st_uid}, not to this process "
            f"({os.geteuid()}): chown it, or choose another"
        )


def _lock(root: str, handle: int) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        text = os.pread(handle, 32, 0).decode("ascii", "replace").strip()
        holder = f"process {text}" if text.isdigit() else "another process"
        raise ConfigError(
            f"the object directory {root} is in use by {holder}: "
            "give each instance a directory of its own, or stop that one"
        ) from None


def _prepare(root: str) -> None:
    """Say who holds the root and clear the unfinished files: nobody alive writes them.

    Nothing stays open for writing, so that the disk can be mounted read-only meanwhile.
    """
    try:
        with open(os.path.join(root, LOCK), "wb") as file:
            file.write(b"%d\n" % os.getpid())
        for folder in (TEMPORARY, QUARANTINE):
            with contextlib.suppress(FileExistsError):
                os.mkdir(os.path.join(root, folder), 0o700)
        with os.scandir(os.path.join(root, TEMPORARY)) as entries:
            for entry in entries:
                os.unlink(entry.path)
    except OSError as error:
        if error.errno not in (*_READ_ONLY, errno.ENOSPC):
            raise
