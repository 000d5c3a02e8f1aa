"""`scopekv admin key`."""

from __future__ import annotations

import time
from typing import Any

import click

from scopekv.cli.admin.command import command, page_options
from scopekv.cli.options import duration, member
from scopekv.gateway.administration.gate import LOCAL_OPERATOR

_KEY = click.argument("key", metavar="KEY_ID")
_OWNER = click.argument("owner", metavar="ORG/NAME", callback=member)


@click.group()
def key() -> None:
    """API keys. A key is shown once and stored as a hash; its id (key_...) names it later."""


@command(
    key,
    "create",
    _OWNER,
    click.option("--label", default="", help="What it is for, as in: laptop."),
    click.option(
        "--expires-in",
        metavar="DURATION",
        callback=duration,
        help="As in 12h or 90d. [default: never]",
    ),
    example="key create acme/alice --label laptop --expires-in 90d",
)
def _key_create(service: Any, owner: tuple[str, str], label: str, expires_in: int | None) -> Any:
    """Create a key for a user or service account, and show it, once."""
    expires_at = None if expires_in is None else time.time() + expires_in
    return service.keys.create(LOCAL_OPERATOR, *owner, label=label, expires_at=expires_at)


@command(
    key,
    "list",
    click.argument("org", metavar="ORG"),
    click.option("--owner", metavar="NAME", help="Only the keys of this account."),
    page_options,
    example="key list acme --owner alice",
)
def _key_list(service: Any, org: str, owner: str | None, after: str, limit: int) -> Any:
    """List the keys of an organisation, without their secrets."""
    return service.keys.list(LOCAL_OPERATOR, org, owner=owner, after=after, limit=limit)


@command(
    key,
    "rotate",
    _KEY,
    click.option(
        "--overlap",
        metavar="DURATION",
        default="0s",
        callback=duration,
        help="Keep the old one so long, as in 1h.",
    ),
    example="key rotate key_0123 --overlap 1h",
)
def _key_rotate(service: Any, key: str, overlap: int) -> Any:
    """Replace a key by a new one of the same owner, label and end, and show it, once."""
    return service.keys.rotate(LOCAL_OPERATOR, key, overlap_seconds=overlap)


@command(key, "block", _KEY, example="key block key_0123")
def _key_block(service: Any, key: str) -> Any:
    """Refuse a key from now on."""
    return service.keys.set_blocked(LOCAL_OPERATOR, key, True)


@command(key, "unblock", _KEY, example="key unblock key_0123")
def _key_unblock(service: Any, key: str) -> Any:
    """Accept a blocked key again."""
    return service.keys.set_blocked(LOCAL_OPERATOR, key, False)


@command(key, "delete", _KEY, example="key delete key_0123")
def _key_delete(service: Any, key: str) -> Any:
    """Delete a key."""
    return service.keys.delete(LOCAL_OPERATOR, key)
