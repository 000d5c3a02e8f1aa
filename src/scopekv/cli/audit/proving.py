"""How an audit's command runs it, and the exit codes of what it could not do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import click

from scopekv.audit.results import AuditResult
from scopekv.cli.running import run
from scopekv.errors import ConfigError, Misuse


class WrongUse(click.ClickException):
    """What was asked for makes no sense."""

    exit_code = 64


class NothingProved(click.ClickException):
    """The audit could not be done, or not enough of it."""

    exit_code = 2


def proved(audit: Callable[[], Awaitable[AuditResult]], *, interrupted: str) -> AuditResult:
    """Run it and return what it found, or end the command. `interrupted`: what Ctrl-C left."""
    found: list[AuditResult] = []

    async def body() -> None:
        found.append(await audit())

    try:
        run(body)
    except click.ClickException as error:
        wrong = isinstance(error.__cause__, (ConfigError, Misuse))
        raise (WrongUse if wrong else NothingProved)(error.message) from error
    if not found:
        raise NothingProved(interrupted)
    return found[0]
