"""What long-running verbs share: signals, a clean end, and where the gateway listens."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import gc
import logging
import os
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import click
import uvloop

from scopekv.compose import World
from scopekv.errors import ConfigError, ScopeKVError
from scopekv.gateway.app import Gateway
from scopekv.gateway.instances_http import Restart
from scopekv.gateway.logs import LogFormat, set_up_logs
from scopekv.gateway.settings import GatewaySettings
from scopekv.gateway.settings_file import read_settings

CHANGE_SECONDS = 1.0
COLLECT_OBJECTS = 10_000  # new ones, net
log = logging.getLogger("scopekv.gateway")


def run(body: Callable[[], Awaitable[None]], *, log_format: LogFormat = "text") -> None:
    """Run `body` until it ends, or Ctrl-C or SIGTERM cancels it; what it started ends with it.

    A second Ctrl-C cancels the ending too. Errors of ours are shown in one line.
    """
    set_up_logs(log_format)

    async def main() -> None:
        working = asyncio.ensure_future(body())

        def stop() -> None:
            click.echo("\nStopping; answers under way have 10 seconds ...", err=True)
            working.cancel()

        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop)
        with contextlib.suppress(asyncio.CancelledError):
            await working

    try:
        uvloop.run(main())
    except ScopeKVError as error:
        raise click.ClickException(str(error)) from error


def check_port(host: str, port: int) -> None:
    """Raise `ConfigError` if nothing can listen there, before half a minute is spent on engines."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise ConfigError(_cannot_listen(host, port, error)) from error


def free_port(host: str) -> int:
    """A port that nobody listens on now."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def claim(folder: Path) -> None:
    """Hold the data directory until this process ends, or raise `ConfigError`.

    A second one on the same directory would take the first one's logs and demo keys.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(folder / "up.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConfigError(f"cannot write to {folder}: {error.strerror}") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise ConfigError(
            f"another `scopekv up` runs on {folder}. Stop it, or give this one its own --data-dir."
        ) from error


def _cannot_listen(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        advice = "Is another one running? Choose another with --port (make serve PORT=...)."
    else:
        advice = "Choose an address of this machine with --host, and a port you may use."
    return f"cannot listen on {host}:{port}: {error.strerror}. {advice}"


@asynccontextmanager
async def gateway_running(
    settings: GatewaySettings, world: World, *, restart: Restart | None = None
) -> AsyncIterator[Gateway]:
    """Start a gateway and stop it at the end. `port` says where it listens."""
    gateway = Gateway(settings, world, restart=restart)
    try:
        await gateway.start()
        _settle()
        yield gateway
    except OSError as error:
        raise ConfigError(_cannot_listen(settings.host, settings.port, error)) from error
    finally:
        await gateway.stop()


def _settle() -> None:
    """Spare what is here now, the tokenizer's words above all, from every collection to come.

    A request leaves few objects behind and hardly a cycle: one look in 10,000 is enough.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_OBJECTS)


async def follow(config: Path, gateway: Gateway) -> None:
    """Until cancelled, take over the file's instances when it changes, and on SIGHUP.

    A file that cannot be read, or makes no sense, changes nothing and is logged.
    """
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, asked.set)
    seen = _stamp(config)
    try:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CHANGE_SECONDS):
                    await asked.wait()
            now = _stamp(config)
            if now == seen and not asked.is_set():
                continue
            asked.clear()
            seen = now
            try:
                await gateway.reload(read_settings(config))
                log.info("%s: read anew", config.name)
            except ScopeKVError as error:
                log.error("%s: not taken over: %s", config.name, error)
    finally:
        loop.remove_signal_handler(signal.SIGHUP)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """Changes when the file does, also where it is replaced (a Kubernetes ConfigMap)."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size
