"""What long-running verbs share: signals, a clean end, and where the gateway listens."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import click
import uvloop

from scopekv.compose import World
from scopekv.errors import ConfigError, ScopeKVError
from scopekv.gateway.app import Gateway
from scopekv.gateway.settings import GatewaySettings


def run(body: Callable[[], Awaitable[None]]) -> None:
    """Run `body` until it ends, or Ctrl-C or SIGTERM cancels it; what it started ends with it.

    A second Ctrl-C cancels the ending too. Errors of ours are shown in one line.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("alembic").setLevel(logging.WARNING)

    async def main() -> None:
        working = asyncio.ensure_future(body())

        def stop() -> None:
            click.echo("\nStopping ...", err=True)
            working.cancel()

        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop)
        with contextlib.suppress(asyncio.CancelledError):
            await working

    try:
        uvloop.run(main())
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
