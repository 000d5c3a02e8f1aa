"""Jobs of the engine: which blocks are still wanted, which are done, and when a job is over.

The one rule of a load: bytes go into a slot under the job's lock and only while the block is
wanted. So once `close` or `cancel` has returned, no byte of that slot is written (T2).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence

from scopekv.core.chains import Tag, holds_any
from scopekv.store.blocks import Block, Done


class Job:
    """One load or store. `folders`: by block, where it lies; None where it has no place."""

    def __init__(
        self, job_id: int, blocks: Sequence[Block], folders: Sequence[str | None], now: float
    ) -> None:
        self.job_id = job_id
        self.lock = threading.Lock()
        self._views: dict[int, memoryview] = {i: block.view for i, block in enumerate(blocks)}
        self._folders = folders
        self._ok: list[int] = []
        self.started = now
        self.size_bytes = 0
        self._reported = False

    @property
    def count(self) -> int:
        return len(self._folders)

    @property
    def is_whole(self) -> bool:
        """Whether every block succeeded."""
        return len(self._ok) == self.count

    @property
    def succeeded(self) -> int:
        return len(self._ok)

    def view(self, index: int) -> memoryview | None:
        """The block's slot; None when it is not wanted any more."""
        with self.lock:
            return self._views.get(index)

    def write(self, index: int, plaintext: memoryview, allowed: Callable[[], bool]) -> bool:
        """Copy into the slot if the block is still wanted and `allowed` says so."""
        with self.lock:
            view = self._views.get(index)
            if view is None or not allowed():
                return False
            view[:] = plaintext
            return True

    def settle(self, index: int, size_bytes: int | None, now: float) -> Done | None:
        """A block is done (None: failed). Returns what to report when it was the last one."""
        with self.lock:
            if self._views.pop(index, None) is None:
                return None
            if size_bytes is not None:
                self._ok.append(index)
                self.size_bytes += size_bytes
            return self._report(now) if not self._views else None

    def cancel(self, tags: frozenset[Tag], now: float) -> tuple[int, Done | None]:
        """Drop the blocks in folders that hold one of `tags`; how many, and what to report."""
        with self.lock:
            gone = [
                index
                for index in self._views
                if (name := self._folders[index]) is not None and holds_any(name, tags)
            ]
            for index in gone:
                del self._views[index]
            return len(gone), self._report(now) if gone and not self._views else None

    def close(self, now: float) -> Done | None:
        """Want nothing any more; what is ok so far is what to report."""
        with self.lock:
            self._views.clear()
            return self._report(now)

    def _report(self, now: float) -> Done | None:
        if self._reported:
            return None
        self._reported = True
        ok = tuple(sorted(self._ok))
        return Done(self.job_id, ok, self.size_bytes, max(0.0, now - self.started))


class JobBoard:
    """The jobs that are not over, and the reports nobody has fetched yet. Thread-safe."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._jobs: dict[int, Job] = {}
        self._done: deque[Done] = deque()

    def open(self, job_id: int, blocks: Sequence[Block], folders: Sequence[str | None]) -> Job:
        job = Job(job_id, blocks, folders, self._monotonic())
        with self._lock:
            self._jobs[job_id] = job
        if not blocks:
            self._over(job, job.close(self._monotonic()))
        return job

    def settle(self, job: Job, index: int, size_bytes: int | None) -> Done | None:
        """One block is done. Returns the report if that ended the job."""
        return self._over(job, job.settle(index, size_bytes, self._monotonic()))

    def close(self, job: Job) -> None:
        self._over(job, job.close(self._monotonic()))

    def abandon(self, job_id: int) -> Job | None:
        """Close a job; return it if it was under way."""
        with self._lock:
            job = self._jobs.get(job_id)
        if job is not None:
            self.close(job)
        return job

    def cancel(self, tags: frozenset[Tag]) -> int:
        """Drop the blocks of these tags in every job; return how many."""
        dropped = 0
        for job in self.running():
            count, done = job.cancel(tags, self._monotonic())
            dropped += count
            self._over(job, done)
        return dropped

    def progress(self, job_id: int) -> int | None:
        with self._lock:
            job = self._jobs.get(job_id)
        return None if job is None else job.succeeded

    def running(self) -> list[Job]:
        with self._lock:
            return list(self._jobs.values())

    def finished(self) -> list[Done]:
        with self._lock:
            done = list(self._done)
            self._done.clear()
            return done

    def _over(self, job: Job, done: Done | None) -> Done | None:
        if done is not None:
            with self._lock:
                if self._jobs.get(job.job_id) is job:
                    del self._jobs[job.job_id]
                self._done.append(done)
        return done
