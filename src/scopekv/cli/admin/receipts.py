"""`scopekv admin receipts`: what became of revocations."""

from __future__ import annotations

from typing import Any

import click

from scopekv.cli.admin.command import command, page_options
from scopekv.gateway.administration.gate import LOCAL_OPERATOR

_UID = click.argument("uid", metavar="UID")


@click.group()
def receipts() -> None:
    """Receipts of revocations: a line for each tier of each instance."""


@command(receipts, "list", page_options, example="receipts list")
def _list(service: Any, after: str, limit: int) -> Any:
    """List the receipts, newest first."""
    return service.receipts.list(LOCAL_OPERATOR, after=after, limit=limit)


@command(receipts, "show", _UID, example="receipts show rcp_5e1f...")
def _show(service: Any, uid: str) -> Any:
    """Show a receipt's lines, and what to do about those that are not done."""
    return service.receipts.show(LOCAL_OPERATOR, uid)


@command(
    receipts,
    "close",
    _UID,
    click.option(
        "--reason", required=True, help="Why nothing can be read; the audit log keeps it."
    ),
    example="receipts close rcp_5e1f... --reason 'gpu-3 was wiped'",
)
def _close(service: Any, uid: str, reason: str) -> Any:
    """Take it upon yourself that what a receipt could not confirm is gone."""
    return service.receipts.close(LOCAL_OPERATOR, uid, reason)
