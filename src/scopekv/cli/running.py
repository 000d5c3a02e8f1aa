"""What long-running verbs share: signals, a clean end, and where the gateway listens."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import click
import uvloop

from scopekv.compose import World
from scopekv.errors import ConfigError, ScopeKVError
from scopekv.gateway.app import Gateway
from scopekv.gateway.settings import GatewaySettings

Body = Callable[[asyncio.Event], Awaitable[None]]


def run(body: Body) -> None:
    """Run `body` with an event that Ctrl-C or SIGTERM sets. A second Ctrl-C ends it at once.

    Errors of ours are shown in one line; whatever `body` started, it ends before this returns.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")

    async def main() -> None:
        stop = asyncio.Event()
        task = asyncio.current_task()
        loop = asyncio.get_running_loop()

        def asked() -> None:
            if stop.is_set() and task is not None:
                task.cancel()
            stop.set()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, asked)
        working = asyncio.ensure_future(body(stop))
        waiting = asyncio.create_task(stop.wait())
        await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            click.echo("\nStopping ...", err=True)
            working.cancel()  # whatever it awaits, its `finally` blocks end what it started
        waiting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await working

    try:
        uvloop.run(main())
    except asyncio.CancelledError:
        sys.exit(130)
    except ScopeKVError as error:
        raise click.ClickException(str(error)) from error


@asynccontextmanager
async def gateway_running(settings: GatewaySettings, world: World) -> AsyncIterator[Gateway]:
    """Start a gateway and stop it at the end. `bound_port` says where it listens."""
    gateway = Gateway(settings, world)
    try:
        await gateway.start()
        yield gateway
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {settings.host}:{settings.port}: {error.strerror}. "
            "Is another one running? Choose another with --port."
        ) from error
    finally:
        await gateway.stop()
