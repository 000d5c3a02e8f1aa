"""`scopekv admin rules | epoch | audit`."""

from __future__ import annotations

from typing import Any

import click

from scopekv.cli.admin.command import command
from scopekv.cli.options import Function
from scopekv.core.policy import Level
from scopekv.gateway.administration.gate import LOCAL_OPERATOR

_ORG = click.argument("org", metavar="ORG")
_SCOPE = click.argument("scope", metavar="SCOPE")


def _level_options(function: Function) -> Function:
    choice = click.Choice([level.value for level in Level])
    for name, text in (
        ("--messages", "Who shares the text of messages."),
        ("--system", "Who shares system messages."),
        ("--tools", "Who shares tool definitions."),
    ):
        function = click.option(name, type=choice, help=text)(function)
    return function


@click.group()
def rules() -> None:
    """Role rules: how widely an organisation shares text that is no published document."""


@command(rules, "show", _ORG, example="rules show acme")
def _rules_show(service: Any, org: str) -> Any:
    """Show an organisation's rules."""
    return service.rules.show(LOCAL_OPERATOR, org)


@command(rules, "set", _ORG, _level_options, example="rules set acme --system user")
def _rules_set(
    service: Any, org: str, tools: str | None, system: str | None, messages: str | None
) -> Any:
    """Set rules: `org` shares among the organisation, `user` with nobody."""
    if tools is None and system is None and messages is None:
        raise click.UsageError("nothing to set; add --tools, --system or --messages")
    return service.rules.set(LOCAL_OPERATOR, org, tools=tools, system=system, messages=messages)


@click.group()
def epoch() -> None:
    """Epochs. SCOPE is org:ORG, user:ORG/NAME or document:DOCUMENT."""


@command(epoch, "show", _SCOPE, example="epoch show org:acme")
def _epoch_show(service: Any, scope: str) -> Any:
    """Show a scope's epoch."""
    return service.epochs.show(LOCAL_OPERATOR, scope)


@command(epoch, "bump", _SCOPE, example="epoch bump user:acme/alice")
def _epoch_bump(service: Any, scope: str) -> Any:
    """Raise a scope's epoch: nothing cached under it is read again."""
    return service.epochs.bump(LOCAL_OPERATOR, scope)


@click.group()
def audit() -> None:
    """The append-only audit log."""


@command(
    audit,
    "list",
    click.option("--after", type=click.IntRange(0), default=0, help="Continue after this entry."),
    click.option("--limit", type=click.IntRange(1, 1000), default=100, show_default=True),
    example="audit list --after 200",
)
def _audit_list(service: Any, after: int, limit: int) -> Any:
    """List entries, oldest first."""
    return service.audit.list(LOCAL_OPERATOR, after=after, limit=limit)


@command(
    audit,
    "verify",
    click.option("--head", help="SEQ:DIGEST that an earlier verify printed and you kept."),
    example="audit verify --head 1200:9f86d0...",
)
def _audit_verify(service: Any, head: str | None) -> Any:
    """Check that no entry was changed, removed or inserted. Exits with 1 if one was."""
    return service.audit.verify(LOCAL_OPERATOR, head)
