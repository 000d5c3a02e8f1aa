"""The embedded engines start, crash, restart and stop; the engine is a small real program."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from scopekv.engines.embedded import (
    EmbeddedEngines,
    EngineProgress,
    EngineState,
    restart_delay_seconds,
)
from scopekv.engines.settings import EngineSettings
from scopekv.errors import ConfigError, Misuse, NotFound, Unavailable

FAKE = Path(__file__).with_name("fake_engine.py")


@pytest.fixture
def settings(tmp_path: Path) -> EngineSettings:
    model_dir = tmp_path / "model"
    model_dir.mkdir()
    (model_dir / "config.json").write_text("{}")
    return EngineSettings(
        model_dir=model_dir,
        data_dir=tmp_path,
        program=(sys.executable, str(FAKE)),
        stop_seconds_max=0.5,
        backoff_seconds_first=0.05,
    )


def with_mode(settings: EngineSettings, mode: str) -> EngineSettings:
    return replace(settings, extra_env={"FAKE_MODE": mode})


def alive_in_group(group: int) -> list[str]:
    """The command lines of a process group's members. The dead that await their parent have none,
    nor has who is dying, whose memory is gone."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            words = (entry / "cmdline").read_text().replace("\0", " ")
            if fields[2] == str(group) and fields[0] not in "ZX" and words:
                found.append(words)
        except (OSError, IndexError):
            continue
    return found


def wait_until(condition: Callable[[], bool], seconds: float = 60.0) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return condition()


def get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=5) as response:
        return bytes(response.read())


async def crash(url: str) -> None:
    with pytest.raises(OSError):  # noqa: PT011 - however the connection ends
        await asyncio.to_thread(get, f"{url}/crash")


async def test_two_engines_start_answer_and_stop(settings: EngineSettings) -> None:
    seen: list[EngineProgress] = []
    engines = EmbeddedEngines(replace(settings, instances=2))
    started = await engines.start(seen.append)
    await engines.wait_ready()
    assert [instance.name for instance in started] == ["engine-0", "engine-1"]
    assert len({i.url for i in started}) == len({i.api_key for i in started}) == 2
    assert set(engines.states.values()) == {EngineState.READY}
    with pytest.raises(Misuse, match="already"):
        await engines.start()
    await engines.stop()
    await engines.stop()
    assert [alive_in_group(instance.pid) for instance in started] == [[], []]
    assert engines.instances == ()
    assert [p.state for p in seen if p.name == "engine-0"][-1] is EngineState.STOPPED
    assert not any(started[0].api_key in progress.detail for progress in seen)


async def test_an_engine_is_restarted_when_asked_and_that_is_no_crash(
    settings: EngineSettings,
) -> None:
    engines = EmbeddedEngines(replace(settings, instances=2, restarts_max=0))
    first, other = await engines.start()
    try:
        with pytest.raises(Unavailable, match="starting"):
            await engines.restart("engine-0")
        with pytest.raises(NotFound):
            await engines.restart("engine-7")
        await engines.wait_ready()
        await engines.restart("engine-0")
        assert alive_in_group(first.pid) == []
        await asyncio.sleep(0)  # its end is seen
        while set(engines.states.values()) != {EngineState.READY}:
            await asyncio.sleep(0.02)
        again, same = engines.instances
        assert (again.url, again.api_key) == (first.url, first.api_key)
        assert again.pid != first.pid
        assert same == other
        await crash(again.url)
        assert "once too often" in await engines.wait_failed()
    finally:
        await engines.stop()


async def test_an_engine_sees_its_key_and_nothing_of_our_environment(
    settings: EngineSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VAULT_TOKEN", "ours")
    monkeypatch.setenv("PYTHONHASHSEED", "1")
    engines = EmbeddedEngines(replace(settings, extra_env={"SCOPEKV_NAME": "at {instance}"}))
    (instance,) = await engines.start()
    try:
        await engines.wait_ready()
        environment = json.loads(await asyncio.to_thread(get, f"{instance.url}/env"))
    finally:
        await engines.stop()
    assert environment["VLLM_API_KEY"] == instance.api_key
    assert environment["SCOPEKV_NAME"] == "at engine-0"
    assert environment["VLLM_PLUGINS"] == ""
    assert not {"VAULT_TOKEN", "PYTHONHASHSEED"} & set(environment)
    assert instance.api_key not in repr(instance)


async def test_a_failed_start_is_told_with_the_log_and_without_the_key(
    settings: EngineSettings,
) -> None:
    engines = EmbeddedEngines(with_mode(settings, "fail"))
    (instance,) = await engines.start()
    with pytest.raises(ConfigError, match="did not start: exit status 3") as caught:
        await engines.wait_ready()
    assert "cannot go on; the key is [secret]" in str(caught.value)
    assert instance.api_key not in str(caught.value)
    assert engines.states == {"engine-0": EngineState.FAILED}
    await engines.stop()


async def test_an_engine_that_never_answers_is_ended(settings: EngineSettings) -> None:
    engines = EmbeddedEngines(replace(with_mode(settings, "silent"), ready_seconds_max=0.3))
    (instance,) = await engines.start()
    with pytest.raises(ConfigError, match="not ready within"):
        await engines.wait_ready()
    assert alive_in_group(instance.pid) == []
    await engines.stop()


async def test_a_program_that_is_absent_is_told(settings: EngineSettings) -> None:
    engines = EmbeddedEngines(replace(settings, program=("/nowhere/python",)))
    await engines.start()
    with pytest.raises(ConfigError, match="cannot run /nowhere/python"):
        await engines.wait_ready()
    await engines.stop()


async def test_a_crash_is_followed_by_a_restart_in_the_same_place(
    settings: EngineSettings,
) -> None:
    engines = EmbeddedEngines(settings)
    (before,) = await engines.start()
    await engines.wait_ready()
    await crash(before.url)
    async with asyncio.timeout(60):
        while engines.instances[0].pid == before.pid:
            await asyncio.sleep(0.02)
        await engines.wait_ready()
    (after,) = engines.instances
    assert (after.url, after.api_key) == (before.url, before.api_key)
    await engines.stop()
    assert alive_in_group(before.pid) == alive_in_group(after.pid) == []


async def test_crashes_without_end_are_given_up_with_a_reason(settings: EngineSettings) -> None:
    engines = EmbeddedEngines(replace(settings, restarts_max=0))
    (instance,) = await engines.start()
    await engines.wait_ready()
    await crash(instance.url)
    async with asyncio.timeout(60):
        reason = await engines.wait_failed()
    assert "exit status 7, once too often" in reason
    assert str(settings.log_dir / "engine-0.log") in reason
    await engines.stop()


async def test_a_deaf_program_and_its_child_are_killed(settings: EngineSettings) -> None:
    engines = EmbeddedEngines(with_mode(settings, "deaf"))
    (instance,) = await engines.start()
    await engines.wait_ready()
    assert len(alive_in_group(instance.pid)) == 3  # the launcher, the program, its child
    await engines.stop()
    assert alive_in_group(instance.pid) == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_the_end_of_the_parent_leaves_no_process(
    settings: EngineSettings, number: signal.Signals
) -> None:
    program = f"""
        import asyncio, signal
        from pathlib import Path
        from scopekv.engines.embedded import EmbeddedEngines
        from scopekv.engines.settings import EngineSettings

        async def main():
            engines = EmbeddedEngines(EngineSettings(
                model_dir=Path({str(settings.model_dir)!r}),
                data_dir=Path({str(settings.data_dir)!r}),
                program={settings.program!r}, extra_env={{"FAKE_MODE": "deaf"}},
                stop_seconds_max=0.5))
            try:
                await engines.start()
                await engines.wait_ready()
                print(engines.instances[0].pid, flush=True)
                await asyncio.sleep(600)
            finally:
                await engines.stop()

        # A run in the background of a shell inherits an ignored SIGINT.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        asyncio.run(main())
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as parent:
        assert parent.stdout is not None
        group = int(parent.stdout.readline())
        assert len(alive_in_group(group)) == 3
        os.kill(parent.pid, number)
        parent.wait(10)
    assert wait_until(lambda: alive_in_group(group) == [])


async def test_an_observer_that_fails_is_told_to_those_who_wait(settings: EngineSettings) -> None:
    def observer(progress: EngineProgress) -> None:
        if progress.state is EngineState.READY:
            raise ValueError("the bar is full")

    engines = EmbeddedEngines(settings)
    await engines.start(observer)
    async with asyncio.timeout(60):
        assert "ValueError: the bar is full" in await engines.wait_failed()
    await engines.stop()


async def test_a_folder_without_a_model_is_refused(settings: EngineSettings) -> None:
    (settings.model_dir / "config.json").unlink()
    with pytest.raises(ConfigError, match=r"no config\.json"):
        await EmbeddedEngines(settings).start()


def test_the_wait_doubles_up_to_its_limit_and_old_crashes_are_forgiven(
    settings: EngineSettings,
) -> None:
    limits = replace(settings, backoff_seconds_first=1.0, backoff_seconds_max=4.0, restarts_max=4)
    delays = [restart_delay_seconds(limits, [0.0] * crashes, now=1.0) for crashes in range(1, 6)]
    assert delays == [1.0, 2.0, 4.0, 4.0, None]
    assert restart_delay_seconds(limits, [0.0] * 9 + [400.0], now=400.0) == 1.0
