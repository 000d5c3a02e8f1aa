"""A few threads that call the store; one that is stuck in a call is given up and replaced."""

from __future__ import annotations

import logging
import mmap
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from scopekv.core.chains import Tag, holds_any
from scopekv.store.jobs import Job
from scopekv.store.settings import TierSettings

log = logging.getLogger("scopekv.tier")


class Urgency(IntEnum):
    """The order in which tasks are taken: a request waits for the first two."""

    CHECK = 0
    LOAD = 1
    STORE = 2


class Desk:
    """What a worker works with: a page-aligned buffer of its own, and the stamp of its call."""

    def __init__(self, buffer_bytes: int, monotonic: Callable[[], float]) -> None:
        self.buffer = memoryview(mmap.mmap(-1, buffer_bytes))
        self.since: float | None = None
        self.task: Task | None = None
        self.given_up = False
        self._monotonic = monotonic

    def beat(self) -> None:
        """Say that the last call returned: the next one has its own time."""
        self.since = self._monotonic()


@dataclass(frozen=True, slots=True)
class Task:
    """One call: a block of a job, or a check. `failed` settles it when it cannot be done."""

    urgency: Urgency
    run: Callable[[Desk], None]
    failed: Callable[[], None]
    job: Job | None = None
    folder: str = ""


class Workers:
    """Threads over one bounded queue. Threads start with the first task.

    Without `threaded` there are none: whoever calls `turn` is the worker.
    """

    def __init__(
        self,
        settings: TierSettings,
        buffer_bytes: int,
        monotonic: Callable[[], float],
        *,
        threaded: bool = True,
    ) -> None:
        self._threaded = threaded
        self._count, self._count_max = settings.workers, settings.workers_max
        self._queue_max = settings.queue_blocks_max
        self._stall = settings.stall_seconds
        self._buffer_bytes = buffer_bytes
        self._monotonic = monotonic
        self._ready = threading.Condition()
        self._queues: tuple[deque[Task], ...] = tuple(deque() for _ in Urgency)
        self._desks: dict[Desk, threading.Thread | None] = {}
        self._idle = 0
        self._closed = False

    def put(self, task: Task) -> bool:
        """Queue a task; False when that queue is full or the pool closed."""
        with self._ready:
            queue = self._queues[task.urgency]
            if self._closed or len(queue) >= self._queue_max:
                return False
            queue.append(task)
            waiting = sum(map(len, self._queues))
            if waiting > self._idle and self._in_use() < self._count and self._may_hire():
                self._hire()
            self._ready.notify()
            return True

    def give_up_stalled(self) -> list[Task]:
        """Give up workers that are in one call for too long; return the tasks they are stuck in.

        Replaced up to `count_max` threads in all; beyond that the queue waits for them.
        """
        now = self._monotonic()
        with self._ready:
            stalled = [
                desk
                for desk in self._desks
                if not desk.given_up and desk.since is not None and now - desk.since > self._stall
            ]
            for desk in stalled:
                desk.given_up = True
                if self._may_hire() and not self._closed:
                    self._hire()
            return [desk.task for desk in stalled if desk.task is not None]

    def drop(self, tags: frozenset[Tag] | None, urgency: Urgency | None = None) -> list[Task]:
        """Take tasks out of the queue: those of folders with these tags, or all (None)."""
        dropped: list[Task] = []
        with self._ready:
            for kind, queue in zip(Urgency, self._queues, strict=True):
                if urgency is not None and kind != urgency:
                    continue
                kept: list[Task] = []
                for task in queue:
                    gone = tags is None or holds_any(task.folder, tags)
                    (dropped if gone else kept).append(task)
                queue.clear()
                queue.extend(kept)
        return dropped

    def queued(self) -> int:
        with self._ready:
            return sum(map(len, self._queues))

    @property
    def exhausted(self) -> bool:
        """Whether every thread there may be is stuck: what is queued would wait for ever."""
        with self._ready:
            return not self._may_hire() and self._in_use() == 0

    def close(self, seconds: float) -> list[Task]:
        """Finish what is queued, for at most so long; return what was not done."""
        deadline = self._monotonic() + seconds
        with self._ready:
            self._closed = True
            self._ready.notify_all()
            threads = list(self._desks.values())
        for thread in filter(None, threads):
            thread.join(max(0.0, deadline - self._monotonic()))
        return self.drop(None)

    def _in_use(self) -> int:
        return sum(not desk.given_up for desk in self._desks)

    def _may_hire(self) -> bool:
        return len(self._desks) < self._count_max

    def _hire(self) -> None:
        desk = Desk(self._buffer_bytes, self._monotonic)
        self._desks[desk] = None
        if not self._threaded:
            return
        thread = threading.Thread(
            target=self._run, args=(desk,), name="scopekv-tier-worker", daemon=True
        )
        self._desks[desk] = thread
        thread.start()

    def _next(self, desk: Desk) -> Task | None:
        """The next task; None when this worker should end."""
        with self._ready:
            desk.task, desk.since = None, None
            while True:
                if desk.given_up and self._in_use() >= self._count:
                    break
                desk.given_up = False
                if self._take(desk):
                    return desk.task
                if self._closed:
                    break
                self._idle += 1
                self._ready.wait()
                self._idle -= 1
            del self._desks[desk]
            return None

    def _take(self, desk: Desk) -> bool:
        """Put the most urgent task on the desk. False where there is none. Under the lock."""
        for queue in self._queues:
            if queue:
                desk.task = queue.popleft()
                desk.beat()
                return True
        return False

    def _run(self, desk: Desk) -> None:
        while (task := self._next(desk)) is not None:
            _do(task, desk)

    def turn(self) -> bool:
        """Do one task in the calling thread, at a desk that is free. False where there is none.

        Turns may nest: a task that is in a call of the store is one that others overtake.
        """
        with self._ready:
            free = [desk for desk in self._desks if desk.task is None]
            if not free or not self._take(desk := free[0]) or desk.task is None:
                return False
        _do(desk.task, desk)
        with self._ready:
            desk.task, desk.since = None, None
            if desk.given_up and self._in_use() >= self._count:
                del self._desks[desk]
            desk.given_up = False
        return True


def _do(task: Task, desk: Desk) -> None:
    try:
        task.run(desk)
    except Exception:
        log.exception("a task of a tier failed where none should")
        task.failed()
