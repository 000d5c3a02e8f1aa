"""The threads of a tier: given up where they hang, replaced up to a limit."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from scopekv.store.settings import TierSettings
from scopekv.store.workers import Desk, Task, Urgency, Workers


class Pool:
    """Workers over calls that hang until `go`; one second of the clock is a hang."""

    def __init__(self) -> None:
        self.now, self.go = 0.0, threading.Event()
        self.begun, self.done = threading.Semaphore(0), threading.Semaphore(0)
        settings = TierSettings(capacity_bytes=1, workers=1, workers_max=3, stall_seconds=1.0)
        self.workers = Workers(settings, 64, lambda: self.now)

    def queue(self) -> None:
        """A call that hangs as soon as a worker takes it up."""
        assert self.workers.put(Task(Urgency.LOAD, self._run, lambda: None))

    def hang(self) -> None:
        self.queue()
        assert self.begun.acquire(timeout=30)

    def give_up(self) -> int:
        self.now += 2.0
        return len(self.workers.give_up_stalled())

    def _run(self, desk: Desk) -> None:  # noqa: ARG002 - the shape of a task
        self.begun.release()
        self.go.wait(30)
        self.done.release()


@pytest.fixture
def pool() -> Iterator[Pool]:
    made = Pool()
    yield made
    made.go.set()
    made.workers.close(10.0)


def test_calls_that_hang_take_no_more_threads_than_the_limit(pool: Pool) -> None:
    for _ in range(3):
        pool.hang()
        assert not pool.workers.exhausted
        assert pool.give_up() == 1
    assert pool.workers.exhausted
    pool.queue()
    assert len(pool.workers._desks) == 3, "it waits: every thread there may be is stuck"
    assert pool.workers.exhausted


def test_a_call_that_comes_back_takes_up_what_waits(pool: Pool) -> None:
    for _ in range(3):
        pool.hang()
        pool.give_up()
    pool.queue()
    pool.go.set()
    for _ in range(4):
        assert pool.done.acquire(timeout=30)
    assert not pool.workers.exhausted
