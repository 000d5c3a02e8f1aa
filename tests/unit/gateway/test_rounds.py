"""Work in rounds goes on whatever it meets, and ends when it is told to."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

import pytest

from scopekv.errors import Unavailable
from scopekv.gateway.rounds import Rounds
from scopekv.simulate.stage import until

LOG = logging.getLogger("scopekv.rounds_of_a_test")


class Work:
    """Meets these, one a round; then nothing more."""

    def __init__(self, *met: Exception) -> None:
        self._met: Iterator[Exception] = iter(met)
        self.done = 0

    async def __call__(self) -> None:
        for error in self._met:
            raise error
        self.done += 1


async def test_trouble_ends_no_rounds_and_is_told_once_a_change(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, logger=LOG.name)  # whatever level the program's logs have
    gone, full = Unavailable("it is gone"), Unavailable("it is full")
    work = Work(gone, gone, ValueError("secret"), gone, full)
    rounds = Rounds(work, 0.001, LOG, waits="the work waits")
    rounds.start()
    await until(lambda: work.done > 2)
    await rounds.stop()
    done = work.done
    await asyncio.sleep(0.02)
    assert work.done == done
    assert [record.message for record in caplog.records if record.name == LOG.name] == [
        "the work waits for the next round: it is gone",
        "the work waits, for an unexpected ValueError",
        "the work waits for the next round: it is gone",
        "the work waits for the next round: it is full",
    ]


async def test_stopping_cancels_the_round_under_way() -> None:
    begun, cancelled = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    rounds = Rounds(work, 0.0, LOG, waits="it waits")
    await rounds.stop()
    rounds.start()
    await begun.wait()
    await rounds.stop()
    assert cancelled.is_set()
