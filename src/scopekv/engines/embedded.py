"""vLLM engines that ScopeKV runs itself: start, watch, restart and stop them.

    starting ──/health──▶ ready ──process ends──▶ restarting ──backoff──▶ starting
        │                                             │
        └─ends before it was ever ready──▶ failed ◀───┘ too many ends within the window

An engine that never was ready is not tried again: its settings are wrong, and the message says so.
"""

import asyncio
import os
import secrets
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from scopekv.engines.process import EngineProcess, describe_exit, is_healthy, log_tail
from scopekv.engines.settings import EngineSettings, engine_command, engine_environment
from scopekv.errors import ConfigError, Misuse, NotFound, Unavailable

_POLL_SECONDS = 0.2
_TAIL_LINES = 15


class EngineState(StrEnum):
    """Where an engine is in its life."""

    STARTING = "starting"
    READY = "ready"
    RESTARTING = "restarting"
    FAILED = "failed"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class EngineInstance:
    """One engine as its callers need it. A restart changes `pid`, the group's leader, alone."""

    name: str
    url: str
    api_key: str = field(repr=False)
    pid: int


@dataclass(frozen=True, slots=True)
class EngineProgress:
    """A change of state, or a tick while starting. `detail` is a sentence without secrets."""

    name: str
    state: EngineState
    detail: str
    elapsed_seconds: float


OnProgress = Callable[[EngineProgress], None]


@dataclass(slots=True)
class _Slot:
    """The place of one instance, over all runs of its process."""

    name: str
    port: int
    api_key: str
    log: Path
    process: EngineProcess
    started: float
    state: EngineState = EngineState.STARTING
    crashes: list[float] = field(default_factory=list)
    asked: bool = False  # to end, by `restart`: its end is then no crash

    def instance(self) -> EngineInstance:
        url = f"http://127.0.0.1:{self.port}"
        return EngineInstance(self.name, url, self.api_key, self.process.pid)


class EmbeddedEngines:
    """Owns the engine processes between `start` and `stop`. One event loop, the main thread's."""

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings
        self._slots: list[_Slot] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._changed = asyncio.Condition()
        self._failure: str | None = None
        self._on_progress: OnProgress = lambda _: None

    @property
    def instances(self) -> tuple[EngineInstance, ...]:
        """The engines as they are now; empty before `start` and after `stop`."""
        return tuple(slot.instance() for slot in self._slots)

    @property
    def log_dir(self) -> Path:
        """Where each engine writes its log."""
        return self._settings.log_dir

    @property
    def states(self) -> dict[str, EngineState]:
        """Each engine's name with where it is in its life."""
        return {slot.name: slot.state for slot in self._slots}

    async def start(self, on_progress: OnProgress | None = None) -> tuple[EngineInstance, ...]:
        """Start every process and return at once; `wait_ready` waits for them.

        After an error nothing runs. Raises ConfigError where the model folder or the data directory
        does not do, Misuse when called twice.
        """
        if self._slots:
            raise Misuse("the engines are started already")
        self._on_progress = on_progress or self._on_progress
        settings = self._settings
        if not (settings.model_dir / "config.json").is_file():
            raise ConfigError(f"{settings.model_dir} is no model folder: it has no config.json")
        try:
            settings.log_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            for index, port in enumerate(settings.ports or _free_ports(settings.instances)):
                self._slots.append(await self._first_run(f"engine-{index}", port))
        except BaseException as error:
            await self.stop()
            if isinstance(error, OSError):
                raise ConfigError(f"cannot start the engines: {error}") from error
            raise
        self._tasks = [asyncio.create_task(self._supervise(slot)) for slot in self._slots]
        return self.instances

    async def wait_ready(self) -> None:
        """Return when every engine answers. Raises ConfigError when one gave up, with its log."""
        async with self._changed:
            await self._changed.wait_for(
                lambda: (
                    self._failure is not None
                    or all(slot.state is EngineState.READY for slot in self._slots)
                )
            )
        if self._failure is not None:
            raise ConfigError(self._failure)

    async def wait_failed(self) -> str:
        """Return the reason when an engine is given up for good; until then never."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._failure is not None)
        return self._failure or ""

    async def restart(self, name: str) -> None:
        """End a ready engine, which then starts anew. Returns once its process has ended.

        Raises `NotFound`, and `Unavailable` while it is not ready.
        """
        slot = next((slot for slot in self._slots if slot.name == name), None)
        if slot is None:
            raise NotFound(f"there is no engine {name[:120]!r}")
        if slot.state is not EngineState.READY or slot.asked:
            raise Unavailable(f"engine {name} is {slot.state}: restart it once it is ready")
        slot.asked = True
        await slot.process.stop(self._settings.stop_seconds_max)

    async def stop(self) -> None:
        """End every engine, the restarts first. After it no process is left. Safe to call twice."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        slots, self._slots = self._slots, []
        grace = self._settings.stop_seconds_max
        await asyncio.gather(*(slot.process.stop(grace) for slot in slots))
        for slot in slots:
            await self._enter(slot, EngineState.STOPPED, "stopped")

    async def _first_run(self, name: str, port: int) -> _Slot:
        api_key = secrets.token_urlsafe(32)
        log = self._settings.log_dir / f"{name}.log"
        if log.exists():
            log.replace(log.with_suffix(".log.1"))
        process = await self._run(name, port=port, api_key=api_key, log=log)
        return _Slot(name, port, api_key, log, process, time.monotonic())

    async def _run(self, name: str, *, port: int, api_key: str, log: Path) -> EngineProcess:
        environment = engine_environment(
            self._settings,
            name=name,
            api_key=api_key,
            cores=len(os.sched_getaffinity(0)),
            inherited=os.environ,
        )
        command = engine_command(self._settings, name=name, port=port)
        return await EngineProcess.start(
            command, env=environment, log=log, cwd=self._settings.data_dir
        )

    async def _supervise(self, slot: _Slot) -> None:
        try:
            await self._keep_running(slot)
        except Exception as error:  # noqa: BLE001 - nobody awaits this task: waiters must hear it
            slot.state = EngineState.FAILED
            async with self._changed:
                self._failure = self._failure or (
                    f"engine {slot.name} is no longer watched: {type(error).__name__}: {error}"
                )
                self._changed.notify_all()

    async def _keep_running(self, slot: _Slot) -> None:
        was_ready = False
        while True:
            problem = await self._until_ready(slot)
            if problem is None:
                was_ready = True
                await self._enter(slot, EngineState.READY, f"ready on port {slot.port}")
                problem = f"engine {slot.name}: {describe_exit(await slot.process.wait())}"
            await slot.process.stop(self._settings.stop_seconds_max)
            if not was_ready:
                await self._give_up(slot, f"{problem}\n{self._tail(slot)}")
                return
            delay: float | None = 0.0
            if not slot.asked:
                slot.crashes.append(time.monotonic())
                delay = restart_delay_seconds(self._settings, slot.crashes, now=time.monotonic())
            slot.asked = False
            if delay is None:
                # No log lines here: a crash dump of a serving engine may hold prompts.
                await self._give_up(slot, f"{problem}, once too often; read {slot.log}")
                return
            await self._enter(slot, EngineState.RESTARTING, f"{problem}; again in {delay:.1f} s")
            await asyncio.sleep(delay)
            slot.process = await self._run(
                slot.name, port=slot.port, api_key=slot.api_key, log=slot.log
            )
            slot.started = time.monotonic()

    async def _until_ready(self, slot: _Slot) -> str | None:
        """Wait until /health answers 200 (None), or say what went wrong."""
        await self._enter(slot, EngineState.STARTING, f"starting, log in {slot.log}")
        limit = self._settings.ready_seconds_max
        while time.monotonic() - slot.started < limit:
            if slot.process.exit_code is not None:
                return f"engine {slot.name} did not start: {describe_exit(slot.process.exit_code)}"
            if await is_healthy(slot.port):
                return None
            self._report(slot, "starting")
            await asyncio.sleep(_POLL_SECONDS)
        return (
            f"engine {slot.name} was not ready within {limit:.0f} s: start it again when the "
            "machine has less to do, or with fewer --instances"
        )

    async def _give_up(self, slot: _Slot, reason: str) -> None:
        self._failure = self._failure or reason
        await self._enter(slot, EngineState.FAILED, reason)

    async def _enter(self, slot: _Slot, state: EngineState, detail: str) -> None:
        async with self._changed:
            slot.state = state
            self._changed.notify_all()
        self._report(slot, detail)

    def _report(self, slot: _Slot, detail: str) -> None:
        elapsed = time.monotonic() - slot.started
        self._on_progress(EngineProgress(slot.name, slot.state, detail, elapsed))

    def _tail(self, slot: _Slot) -> str:
        # extra_env may carry keys; nothing of it belongs in a message. Short values would blot out
        # harmless text ("1").
        extra = (value for value in self._settings.extra_env.values() if len(value) >= 16)
        tail = log_tail(slot.log, lines_max=_TAIL_LINES, secrets=(slot.api_key, *extra))
        return f"The last lines of {slot.log}:\n{tail}"


def restart_delay_seconds(
    settings: EngineSettings, crashes: Sequence[float], *, now: float
) -> float | None:
    """How long to wait before the next start, doubling with each recent crash; None: give up.

    `crashes`: monotonic seconds of each end of the process, the one just seen included.
    """
    recent = sum(1 for moment in crashes if now - moment <= settings.restart_window_seconds)
    if recent > settings.restarts_max:
        return None
    return float(
        min(settings.backoff_seconds_max, settings.backoff_seconds_first * 2 ** (recent - 1))
    )


def _free_ports(count: int) -> list[int]:
    """Loopback ports that nobody listens on now; all are held until the last is known."""
    holders = [socket.socket() for _ in range(count)]
    try:
        for holder in holders:
            holder.bind(("127.0.0.1", 0))
        return [holder.getsockname()[1] for holder in holders]
    finally:
        for holder in holders:
            holder.close()
