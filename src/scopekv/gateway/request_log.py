"""The gateway's own request log: what was served, without its text, for `scopekv simulate`.

A request only puts a note into a bounded queue; names are made and written by a thread. Where it
cannot keep up or the disk is full, lines are left out and counted (L8): the next one says how many.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import queue
import stat
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

from scopekv.core.request_log import (
    FORMAT,
    LoggedRequest,
    block_names,
    encode_logged,
    log_key,
    sender_names,
)
from scopekv.core.values import light_value
from scopekv.errors import ConfigError
from scopekv.gateway.instances import Instance
from scopekv.gateway.passing import Told
from scopekv.gateway.prompts import Prompt
from scopekv.gateway.reading import Job
from scopekv.gateway.settings import RequestLogSettings

WAITING_MAX = 1024  # notes, each with a prompt's tokens
BLOCK_TOKENS = 16  # where an engine does not tell
_BATCH = 64
_HEAD = b'{"format":"%b"' % FORMAT.encode()  # how each line begins
log = logging.getLogger("scopekv.request_log")


@light_value(repr=False)
class _Note:
    """Nothing of the request's body: a disk that hangs must not hold so many of them."""

    org_uid: str
    uid: str
    came: float  # when it was here whole, on the clock of `time.perf_counter`
    namespace: bytes
    prompt: Prompt
    epochs: tuple[int, ...]
    block_tokens: int
    told: Told
    at: float  # the same moment, since 1970


class RequestLog:
    """Use: `start`, `note` for each answer, then `stop`. Without a path all do nothing."""

    def __init__(
        self,
        settings: RequestLogSettings,
        scope_secret: bytes,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._settings, self._key, self._clock = settings, log_key(scope_secret), clock
        self._notes: queue.Queue[_Note | None] = queue.Queue(WAITING_MAX)
        self._thread: threading.Thread | None = None
        self._refused = 0  # notes that found the queue full, so far
        self._unwritten = 0  # requests since the last line that was written
        self._trouble = ""

    def start(self) -> None:
        """Begin to write. Raises `ConfigError` where the file cannot be opened."""
        if self._settings.path is not None:
            file = LogFile(self._settings.path, self._settings)
            self._thread = threading.Thread(
                target=self._run, args=(file,), name="request-log", daemon=True
            )
            self._thread.start()

    def stop(self) -> None:
        """Write what waits, and end. Blocks."""
        if self._thread is not None:
            self._notes.put(None)
            self._thread.join()

    def note(
        self, job: Job, instance: Instance, prompt: Prompt, epochs: tuple[int, ...], told: Told
    ) -> None:
        """Have an answered request written. Never waits. Cost: a few microseconds."""
        if self._thread is None:
            return
        who, came = job.caller.principal, job.began - job.waited_seconds
        at = self._clock() - (time.perf_counter() - came)
        block = instance.block_size or BLOCK_TOKENS
        namespace = instance.fingerprint or str(job.body["model"]).encode()
        note = _Note(who.org_uid, who.uid, came, namespace, prompt, epochs, block, told, at)
        try:
            self._notes.put_nowait(note)
        except queue.Full:
            self._refused += 1

    def _run(self, file: LogFile) -> None:
        known = 0
        for batch in self._batches():
            refused = self._refused
            self._unwritten += refused - known
            known = refused
            lines, before = [], self._unwritten
            for note in batch:
                line = self._line(note)
                if line is None:
                    self._unwritten += 1
                else:
                    lines.append(line)
                    self._unwritten = 0
            try:
                file.append(b"".join(lines))
            except OSError as error:
                self._unwritten = before + len(batch)
                self._complain(f"{file.path} cannot be written: {error.strerror}")
            else:
                self._trouble = ""
        file.close()

    def _batches(self) -> Iterator[list[_Note]]:
        """Notes as they come, some at a time, up to the end."""
        while (first := self._notes.get()) is not None:
            batch, ends = [first], False
            with contextlib.suppress(queue.Empty):
                while len(batch) < _BATCH:
                    note = self._notes.get_nowait()
                    if note is None:
                        ends = True
                        break
                    batch.append(note)
            yield batch
            if ends:
                return

    def _line(self, note: _Note) -> bytes | None:
        """None for a prompt whose tokens are not known, or that cannot be told."""
        tokens, usage = note.prompt.tokens, note.told.usage
        if not tokens:
            return None
        first = note.told.first_at
        try:
            blocks, scopes = block_names(
                *(self._key, note.namespace, tokens.packed),
                *(note.prompt.segments, note.epochs, note.block_tokens),
            )
            return encode_logged(
                LoggedRequest(
                    int(note.at * 1000),
                    len(tokens),
                    (usage.completion_tokens or 0) if usage is not None else 0,
                    note.block_tokens,
                    blocks,
                    scopes,
                    *sender_names(self._key, note.org_uid, note.uid),
                    cached_tokens=usage.cached if usage is not None else None,
                    first_token_ms=None if first is None else round(1e3 * (first - note.came), 3),
                    lost=self._unwritten,
                )
            )
        except Exception as error:  # noqa: BLE001 - one strange request must not end the log
            self._complain(f"a request could not be told: {type(error).__name__}")
            return None

    def _complain(self, trouble: str) -> None:
        """Once while it lasts."""
        if trouble != self._trouble:
            log.error("the request log misses requests: %s", trouble)
        self._trouble = trouble


class LogFile:
    """Whole lines alone, also after a crash or on a full disk. For one process."""

    def __init__(self, path: Path, settings: RequestLogSettings) -> None:
        """Raises `ConfigError` where it cannot be opened, and for a file of another kind."""
        self.path, self._settings = path, settings
        try:
            self._fd, self._size = _opened(path)
        except OSError as error:
            raise ConfigError(f"[request_log] path {path}: {error.strerror}") from error

    def append(self, lines: bytes) -> None:
        """Write them all or none. Raises OSError."""
        if self._size and self._size + len(lines) > self._settings.bytes_max:
            self._rotate()
        try:
            written = 0
            while written < len(lines):
                written += os.pwrite(self._fd, lines[written:], self._size + written)
        except OSError:
            os.ftruncate(self._fd, self._size)
            raise
        self._size += len(lines)

    def _rotate(self) -> None:
        """Begin a new file. The full one stays open until then, whatever fails before.

        A closed descriptor's number may be a client's connection or the registry's file by the
        next try.
        """
        names = [self.path]
        names += [Path(f"{self.path}.{n}") for n in range(1, self._settings.files_max)]
        if len(names) == 1:
            self.path.unlink(missing_ok=True)
        elif self.path.exists():  # else an earlier try has moved it
            for old, new in reversed(list(pairwise(names))):
                with contextlib.suppress(FileNotFoundError):
                    old.replace(new)
        full = self._fd
        self._fd, self._size = _opened(self.path)
        os.close(full)

    def close(self) -> None:
        os.close(self._fd)


def _opened(path: Path) -> tuple[int, int]:
    """A log's descriptor, and its size at the end of its last whole line. Raises OSError.

    A file with other content is refused untouched: a wrong path must not cut off a database. So is
    one that others may read: it tells who sends alike prompts, and when.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        found = os.fstat(fd)
        size, mode = found.st_size, stat.S_IMODE(found.st_mode)
        head = os.pread(fd, len(_HEAD), 0)
        if not _HEAD.startswith(head):
            raise OSError(errno.EEXIST, "it holds something else than a request log")
        if mode & 0o077:
            raise OSError(errno.EPERM, f"others may read or write it (mode {mode:o}): chmod 600 it")
        while size:
            start = max(0, size - (1 << 16))
            end = os.pread(fd, size - start, start).rfind(b"\n") + 1
            size = start + end
            if end:
                break
        os.ftruncate(fd, size)
    except BaseException:
        os.close(fd)
        raise
    return fd, size
