"""One run of an engine program: what is signalled, and when no more."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from scopekv.engines.process import EngineProcess

SLEEP = ("/bin/sleep", "60")


@pytest.mark.parametrize("ended_by", ["stop", "itself"])
async def test_a_group_that_is_over_is_never_signalled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ended_by: str
) -> None:
    """A failed engine is stopped with the others, hours later: its number may be another's."""
    command = SLEEP if ended_by == "stop" else ("/bin/true",)
    process = await EngineProcess.start(command, env={}, log=tmp_path / "log", cwd=tmp_path)
    sent: list[int] = []
    killpg = os.killpg

    def watched(group: int, number: int) -> None:
        sent.append(number)
        killpg(group, number)

    monkeypatch.setattr(os, "killpg", watched)
    if ended_by == "stop":
        await process.stop(10.0)
    else:
        assert await process.wait() == 0
    assert sent[-1] == signal.SIGKILL, "nothing of the group is left"
    before = len(sent)
    await process.stop(10.0)
    await process.wait()
    assert len(sent) == before
