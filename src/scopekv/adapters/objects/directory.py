"""Objects as files of a local directory that one process owns.

    <root>/.lock               held while a process uses the root; says which
    <root>/.tmp/<pid>-<n>      being written; removed when the next owner claims the root
    <root>/.quarantine/<chain>.<name>   the last 16 corrupt objects
    <root>/<chain>/<name>      an object, visible whole by rename

Folders have mode 0700, files 0600. Nothing is synced: a killed process loses no finished object,
and what a power cut tears fails its seal, which costs a miss.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import itertools
import os
import stat
import threading
import weakref
from collections.abc import Iterator, Sequence

from scopekv.adapters.objects import files
from scopekv.adapters.objects.claim import QUARANTINE, TEMPORARY, Claim, claim
from scopekv.adapters.objects.naming import checked_chain, is_chain, key_of, path_of
from scopekv.errors import ConfigError, Unavailable
from scopekv.ports import ObjectKey, ObjectStat
from scopekv.ports.objects import Bytes, Wanted

QUARANTINED_MAX = 16
_ABSENT = (errno.ENOENT, errno.ENOTDIR)


class DirectoryStore:
    """The object store of one machine.

    Cost, page cache warm: put about as long as one `write` of the bytes, get one `pread`; no copy
    in user space. Raises `ConfigError` at the start where another live process owns the root or
    others may write into it; a root that is out of reach is claimed by the first call that can.
    """

    medium = "directory"

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._root = os.path.abspath(root)
        self._lock = threading.Lock()
        self._folders = threading.Lock()  # held while a folder is made and filled, or removed
        self._claim: Claim | None = None
        self._closed = False
        self._numbers = itertools.count()
        with contextlib.suppress(OSError):
            os.makedirs(self._root, mode=0o700, exist_ok=True)
        with contextlib.suppress(OSError):
            self._claim = claim(self._root)
        os.register_at_fork(after_in_child=functools.partial(_let_go, weakref.ref(self)))

    def put(self, key: ObjectKey, parts: Sequence[Bytes]) -> None:
        path = path_of(key)
        with self._using() as root:
            temporary = f"{root}/{TEMPORARY}/{os.getpid()}-{next(self._numbers)}"
            try:
                files.write(temporary, parts)
                self._show(temporary, root, key.chain, f"{root}/{path}")
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
                raise

    def get(self, key: ObjectKey, into: memoryview) -> int | None:
        path = path_of(key)
        with self._using() as root:
            try:
                # A pipe in its place must not make us wait.
                flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
                handle = os.open(f"{root}/{path}", flags)
            except OSError as error:
                self._absent(error)
                return None
            try:
                regular = stat.S_ISREG(os.fstat(handle).st_mode)
                return files.read(handle, into) if regular else None
            finally:
                os.close(handle)

    def present(self, keys: Sequence[ObjectKey]) -> frozenset[ObjectKey]:
        paths = [path_of(key) for key in keys]
        found = set()
        with self._using() as root:
            for key, path in zip(keys, paths, strict=True):
                try:
                    os.stat(f"{root}/{path}", follow_symlinks=False)
                except OSError as error:
                    self._absent(error)
                else:
                    found.add(key)
        return frozenset(found)

    def delete(self, keys: Sequence[ObjectKey]) -> int:
        """Also drops all that is quarantined of the same folders, and folders left empty."""
        paths = [path_of(key) for key in keys]
        count = 0
        with self._using() as root:
            for path in paths:
                try:
                    os.unlink(f"{root}/{path}")
                    count += 1
                except IsADirectoryError:
                    pass  # somebody else's: no object was ever a folder
                except OSError as error:
                    self._absent(error)
            chains = {key.chain for key in keys}
            for name in self._quarantined(root):
                if name.partition(".")[0] in chains:
                    files.unlink(f"{root}/{QUARANTINE}/{name}")
            for chain in chains:
                with self._folders, contextlib.suppress(OSError):  # not empty, or gone: both fine
                    os.rmdir(f"{root}/{chain}")
        return count

    def chains(self) -> Iterator[str]:
        with self._using() as root, os.scandir(root) as entries:
            names = [entry.name for entry in entries if is_chain(entry.name)]
        yield from names

    def objects(self, chain: str | Wanted | None = None) -> Iterator[ObjectStat]:
        """Reads one folder at a time; about 5 µs an object, names and sizes cached."""
        folders = iter((checked_chain(chain),)) if isinstance(chain, str) else self.chains()
        for folder in folders:
            if not callable(chain) or chain(folder):
                yield from self._folder(folder)

    def quarantine(self, key: ObjectKey) -> None:
        """Move the file to `.quarantine`, which keeps the last 16."""
        path = path_of(key)
        with self._using() as root:
            try:
                os.rename(f"{root}/{path}", f"{root}/{QUARANTINE}/{path_of(key, '.')}")
            except OSError as error:
                self._absent(error)
                files.unlink(f"{root}/{path}")  # it is there where the quarantine is not
            self._trim(root)

    def quarantined(self) -> Iterator[ObjectStat]:
        """With the time at which each was stored, which a rename keeps."""
        found = []
        with self._using() as root:
            for name in self._quarantined(root):
                key = key_of(name, ".")
                with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
                    status = os.stat(f"{root}/{QUARANTINE}/{name}", follow_symlinks=False)
                    if key is not None:
                        found.append(ObjectStat(key, status.st_size, status.st_mtime))
        yield from found

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._claim is not None:
                self._claim.release()
                self._claim = None

    @contextlib.contextmanager
    def _using(self) -> Iterator[str]:
        """Give the claimed root; whatever goes wrong in it is `Unavailable`."""
        if self._claim is None:
            self._claim_again()
        try:
            yield self._root
        except OSError as error:
            if error.errno == errno.ENOENT:
                self._forget_vanished()
            raise Unavailable(
                f"the object directory {self._root}: {error.strerror or 'failed'}"
            ) from error

    def _claim_again(self) -> None:
        with self._lock:
            if self._closed:
                raise Unavailable("the object directory is closed")
            if self._claim is None:
                try:
                    self._claim = claim(self._root)
                except OSError as error:
                    raise Unavailable(
                        f"the object directory {self._root}: {error.strerror}"
                    ) from error
                except ConfigError as error:
                    raise Unavailable(str(error)) from error

    def let_go(self) -> None:
        """In a forked child: the root stays its parent's, and is free when that one ends."""
        self._lock = threading.Lock()
        if self._claim is not None:
            self._claim.release()
            self._claim = None

    def _absent(self, error: OSError) -> None:
        """Return where `error` means no such object in a root that is there; else raise it."""
        if error.errno not in _ABSENT:
            raise error
        os.stat(f"{self._root}/{TEMPORARY}")

    def _forget_vanished(self) -> None:
        """Give up the claim on a root that is gone, so that it is claimed anew when it is back."""
        with self._lock:
            if self._claim is not None and not os.path.isdir(f"{self._root}/{TEMPORARY}"):
                self._claim.release()
                self._claim = None

    def _show(self, temporary: str, root: str, chain: str, path: str) -> None:
        """Rename into place. Without the lock a `delete` could take the empty folder away between
        the two calls; no other process does, since the directory is ours."""
        try:
            os.rename(temporary, path)
        except FileNotFoundError:
            with self._folders:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(f"{root}/{chain}", 0o700)
                os.rename(temporary, path)

    def _folder(self, chain: str) -> Iterator[ObjectStat]:
        found = []
        with self._using() as root:
            try:
                entries = os.scandir(f"{root}/{chain}")
            except OSError as error:
                self._absent(error)
                return
            with entries:
                for entry in entries:
                    key = key_of(f"{chain}/{entry.name}")
                    if key is None:
                        continue
                    with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
                        status = entry.stat(follow_symlinks=False)
                        if stat.S_ISREG(status.st_mode):
                            found.append(ObjectStat(key, status.st_size, status.st_mtime))
        yield from found

    def _quarantined(self, root: str) -> list[str]:
        try:
            return os.listdir(f"{root}/{QUARANTINE}")
        except FileNotFoundError:
            os.stat(f"{root}/{TEMPORARY}")  # a root that is gone has not none
            return []

    def _trim(self, root: str) -> None:
        """Drop the oldest beyond 16; a rename sets the time of the last status change."""
        aged = []
        for name in self._quarantined(root):
            path = f"{root}/{QUARANTINE}/{name}"
            with contextlib.suppress(FileNotFoundError):
                aged.append((os.stat(path).st_ctime_ns, path))
        for _, path in sorted(aged)[:-QUARANTINED_MAX]:
            files.unlink(path)


def _let_go(reference: weakref.ref[DirectoryStore]) -> None:
    if (store := reference()) is not None:
        store.let_go()
