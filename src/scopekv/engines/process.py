"""One run of one engine program: start it in a process group of its own, watch it, end it.

Nothing outlives the caller: a stop ends the whole group, and launch.py ends it when the thread that
started it does, even by SIGKILL.
"""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

_TAIL_BYTES = 16_384
_HEALTH_SECONDS_MAX = 5.0


class EngineProcess:
    """A running program with its process group. Made by `start` only."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._over = False  # the group was ended: its number may be somebody else's by now

    @classmethod
    async def start(
        cls, command: Sequence[str], *, env: Mapping[str, str], log: Path, cwd: Path
    ) -> "EngineProcess":
        """Run `command` with exactly `env`; both outputs are appended to `log` (mode 0600).

        Raises OSError where the log cannot be written or no process can be made. Call it from the
        main thread: the program is killed when the thread that started it ends.
        """
        shim = [sys.executable, "-I", "-S", str(Path(__file__).with_name("launch.py"))]
        descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            process = await asyncio.create_subprocess_exec(
                *shim,
                str(os.getpid()),
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=descriptor,
                stderr=asyncio.subprocess.STDOUT,
                env=dict(env),
                cwd=cwd,
                start_new_session=True,
            )
        finally:
            os.close(descriptor)
        return cls(process)

    @property
    def pid(self) -> int:
        """The id of the process group and of its leader, launch.py; the program is its child."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; minus the signal's number where a signal ended it."""
        return self._process.returncode

    async def wait(self) -> int:
        """Wait for the program's end, then end what is left of its group. Gives the exit code."""
        code = await self._process.wait()
        self._signal_group(signal.SIGKILL)
        self._over = True
        return code

    async def stop(self, grace_seconds: float) -> None:
        """SIGTERM to the group, then SIGKILL after the grace. Returns when the program is gone.

        Safe to call twice and after its end. When cancelled it kills at once.
        """
        self._signal_group(signal.SIGTERM)
        try:
            async with asyncio.timeout(grace_seconds):
                await self._process.wait()
        except TimeoutError:
            pass
        finally:
            self._signal_group(signal.SIGKILL)
        await self._process.wait()
        self._over = True

    def _signal_group(self, number: signal.Signals) -> None:
        if self._over:
            return
        # Gone already, or (PermissionError) an id that the system has since given to someone else.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)


def describe_exit(code: int) -> str:
    """An exit code in words, for a message."""
    if code >= 0:
        return f"exit status {code}"
    name = signal.Signals(-code).name
    hint = ", perhaps for want of memory" if -code == signal.SIGKILL else ""
    return f"ended by {name}{hint}"


def log_tail(log: Path, *, lines_max: int, secrets: Iterable[str]) -> str:
    """The last lines of a log, with each of `secrets` blotted out; empty where there is no log."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    for secret in secrets:
        text = text.replace(secret, "[secret]")
    return "\n".join(text.splitlines()[-lines_max:])


async def is_healthy(port: int) -> bool:
    """Whether GET /health answers 200. A refused, slow or odd answer is a no."""
    request = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    try:
        async with asyncio.timeout(_HEALTH_SECONDS_MAX):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(request)
                status = await reader.readline()
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return False
    return status.split(b" ")[1:2] == [b"200"]
