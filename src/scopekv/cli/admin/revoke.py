"""`scopekv admin revoke`: take it away everywhere, and wait until every engine has confirmed."""

from __future__ import annotations

import time
from typing import Any

import click
import msgspec

from scopekv.cli.admin.command import command
from scopekv.cli.options import member
from scopekv.gateway.administration.gate import LOCAL_OPERATOR

ASK_SECONDS = 0.1
NO_GATEWAY_SECONDS = 10.0
_ACCOUNT = click.argument("account", metavar="ORG/NAME", callback=member)
_WAIT = click.option(
    "--wait",
    "wait_seconds",
    type=click.IntRange(0, 3600),
    default=30,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait until every instance has confirmed.",
)


@click.group()
def revoke() -> None:
    """Revoke: no later request reads what was kept, anywhere.

    \b
    At once: the epoch is raised, the sealing keys are destroyed. Then the gateway purges engine
    memory, host memory, disk and remote stores through every instance.
    Exits with 0 when all have confirmed, with 3 when not all have yet: the gateway goes on.
    """


@command(
    revoke,
    "user",
    _ACCOUNT,
    click.option(
        "--erase", is_flag=True, help="Also what is kept of the documents for this account alone."
    ),
    _WAIT,
    example="revoke user acme/alice --erase",
)
def _user(service: Any, account: tuple[str, str], erase: bool, wait_seconds: int) -> Any:
    """Revoke all scopes of a user or service account, its end users' and sessions' too."""
    return _waited(
        service, service.revocations.user(LOCAL_OPERATOR, *account, erase=erase), wait_seconds
    )


@command(
    revoke,
    "session",
    _ACCOUNT,
    click.argument("session", metavar="SESSION"),
    click.option("--end-user", default="", help="Whose session it is, for a service account."),
    _WAIT,
    example="revoke session acme/chatbot 4711 --end-user u-17",
)
def _session(
    service: Any, account: tuple[str, str], session: str, end_user: str, wait_seconds: int
) -> Any:
    """Revoke a session, and with it all other scopes of its account: they share an epoch."""
    made = service.revocations.session(LOCAL_OPERATOR, *account, session, end_user=end_user)
    return _waited(service, made, wait_seconds)


@command(
    revoke,
    "document",
    click.argument("document", metavar="DOCUMENT"),
    _WAIT,
    example="revoke document handbook",
)
def _document(service: Any, document: str, wait_seconds: int) -> Any:
    """Revoke what is kept of a document. It stays published; its next use starts anew."""
    return _waited(service, service.revocations.document(LOCAL_OPERATOR, document), wait_seconds)


@command(
    revoke,
    "membership",
    click.argument("group", metavar="ORG/GROUP", callback=member),
    _ACCOUNT,
    _WAIT,
    example="revoke membership acme/eng acme/alice",
)
def _membership(
    service: Any, group: tuple[str, str], account: tuple[str, str], wait_seconds: int
) -> Any:
    """Take a member out of a group, and revoke what is kept of the group's documents."""
    if group[0] != account[0]:
        raise click.UsageError("a group has members of its own organisation only")
    made = service.revocations.membership(LOCAL_OPERATOR, *group, account[1])
    return _waited(service, made, wait_seconds)


@command(revoke, "org", click.argument("org", metavar="ORG"), _WAIT, example="revoke org acme")
def _org(service: Any, org: str, wait_seconds: int) -> Any:
    """Revoke everything of an organisation: its own scope, its accounts', its documents'."""
    return _waited(service, service.revocations.org(LOCAL_OPERATOR, org), wait_seconds)


def _waited(service: Any, made: Any, wait_seconds: int) -> Any:
    """The revocation with its receipt as it is when it is over, or so many seconds later.

    The registry is asked, not the gateway: whichever one works on it writes there.
    """
    receipt, began = made.receipt, time.monotonic()
    while receipt.state not in ("done", "closed"):
        waited = time.monotonic() - began
        if receipt.state == "pending" and waited >= NO_GATEWAY_SECONDS:
            click.echo("no gateway is running: it is purged when one starts", err=True)
            break
        if waited >= wait_seconds:
            break
        time.sleep(min(ASK_SECONDS, wait_seconds - waited))
        receipt = service.receipts.show(LOCAL_OPERATOR, receipt.id)
    return msgspec.structs.replace(made, receipt=receipt)
