"""A whole file written, read or removed: what an object is in a directory."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Sequence

from scopekv.ports.objects import Bytes


def unlink(path: str) -> None:
    """Remove a file, if it is there."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def write(path: str, parts: Sequence[Bytes]) -> None:
    """Make the file whole. Room is taken first: a full disk shows at once, and parts that are not
    aligned to pages then cost nothing extra (3.0 instead of 2.5 GB/s on ext4)."""
    views = [view for view in (memoryview(part).cast("B") for part in parts) if len(view)]
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        size_bytes = sum(map(len, views))
        if size_bytes:
            _reserve(handle, size_bytes)
        while views:
            written = os.writev(handle, views)
            while views and written >= len(views[0]):
                written -= len(views.pop(0))
            if written:
                views[0] = views[0][written:]
    finally:
        os.close(handle)


def _reserve(handle: int, size_bytes: int) -> None:
    try:
        os.posix_fallocate(handle, 0, size_bytes)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
            raise


def read(handle: int, into: memoryview) -> int:
    """Read the whole file into `into`, or return its length if it is longer."""
    size_bytes = os.fstat(handle).st_size
    view = into.cast("B")
    if size_bytes > len(view):
        return size_bytes
    done = 0
    while done < size_bytes:
        count = os.preadv(handle, [view[done:size_bytes]], done)
        if not count:
            return done  # cut short under our hands: its seal will tell
        done += count
    return size_bytes
