"""`scopekv admin org | user | service-account | group | role`."""

from __future__ import annotations

from typing import Any

import click

from scopekv.cli.admin.command import command, page_options
from scopekv.cli.options import member
from scopekv.core.administration import Role
from scopekv.gateway.administration.gate import LOCAL_OPERATOR

_ORG = click.argument("name", metavar="ORG")
_ACCOUNT = click.argument("account", metavar="ORG/NAME", callback=member)
_GROUP = click.argument("group", metavar="ORG/GROUP", callback=member)
_NAME = click.argument("member", metavar="NAME")
_ROLE = click.argument("role", type=click.Choice([role.value for role in Role]))


@click.group()
def org() -> None:
    """Organisations: the outermost boundary of sharing."""


@command(org, "create", _ORG, example="org create acme")
def _org_create(service: Any, name: str) -> Any:
    """Create an organisation."""
    return service.orgs.create(LOCAL_OPERATOR, name)


@command(org, "list", page_options, example="org list --json")
def _org_list(service: Any, after: str, limit: int) -> Any:
    """List the organisations."""
    return service.orgs.list(LOCAL_OPERATOR, after=after, limit=limit)


@command(org, "show", _ORG, example="org show acme")
def _org_show(service: Any, name: str) -> Any:
    """Show one organisation."""
    return service.orgs.show(LOCAL_OPERATOR, name)


@command(org, "block", _ORG, example="org block acme")
def _org_block(service: Any, name: str) -> Any:
    """Block an organisation: every key of its accounts is refused from now on."""
    return service.orgs.set_blocked(LOCAL_OPERATOR, name, True)


@command(org, "unblock", _ORG, example="org unblock acme")
def _org_unblock(service: Any, name: str) -> Any:
    """Let a blocked organisation work again."""
    return service.orgs.set_blocked(LOCAL_OPERATOR, name, False)


@command(org, "delete", _ORG, example="org delete acme")
def _org_delete(service: Any, name: str) -> Any:
    """Delete an organisation with its accounts, groups and keys. Withdraw its documents first."""
    return service.orgs.delete(LOCAL_OPERATOR, name)


@click.group()
def user() -> None:
    """Users: people, each with a private scope of their own."""


@click.group("service-account")
def service_account() -> None:
    """Service accounts: applications that speak for end users."""


def _account_commands(parent: click.Group, word: str, example: str, service_kind: bool) -> None:
    """The same six commands for users and for service accounts."""

    def create(service: Any, account: tuple[str, str]) -> Any:
        return service.accounts.create(LOCAL_OPERATOR, *account, service=service_kind)

    def listing(service: Any, name: str, after: str, limit: int) -> Any:
        return service.accounts.list(
            LOCAL_OPERATOR, name, service=service_kind, after=after, limit=limit
        )

    def show(service: Any, account: tuple[str, str]) -> Any:
        return service.accounts.show(LOCAL_OPERATOR, *account, service=service_kind)

    def block(service: Any, account: tuple[str, str]) -> Any:
        return service.accounts.set_blocked(
            LOCAL_OPERATOR, *account, service=service_kind, blocked=True
        )

    def unblock(service: Any, account: tuple[str, str]) -> Any:
        return service.accounts.set_blocked(
            LOCAL_OPERATOR, *account, service=service_kind, blocked=False
        )

    def delete(service: Any, account: tuple[str, str]) -> Any:
        return service.accounts.delete(LOCAL_OPERATOR, *account, service=service_kind)

    verb = parent.name
    for name, function, text in (
        ("create", create, f"Create a {word}, with the role member."),
        ("show", show, f"Show a {word}."),
        ("block", block, f"Block a {word}: its keys are refused from now on."),
        ("unblock", unblock, f"Let a blocked {word} work again."),
        ("delete", delete, f"Delete a {word} with its keys. A new one of the name is another."),
    ):
        function.__doc__ = text
        command(parent, name, _ACCOUNT, example=f"{verb} {name} {example}")(function)
    listing.__doc__ = f"List the {word}s of an organisation."
    command(parent, "list", _ORG, page_options, example=f"{verb} list acme")(listing)


_account_commands(user, "user", "acme/alice", service_kind=False)
_account_commands(service_account, "service account", "acme/chatbot", service_kind=True)


@command(
    user,
    "link",
    _ACCOUNT,
    click.option("--issuer", required=True, help="As in [oidc] issuer."),
    click.option("--subject", required=True, help="The `sub` of this person's tokens."),
    example="user link acme/alice --issuer https://login.example.com --subject 24400320",
)
def _user_link(service: Any, account: tuple[str, str], issuer: str, subject: str) -> Any:
    """Let a person's tokens call as this user, and as no other any more."""
    return service.accounts.link(LOCAL_OPERATOR, *account, issuer=issuer, subject=subject)


@click.group()
def group() -> None:
    """Groups: audiences within one organisation."""


@command(group, "create", _GROUP, example="group create acme/eng")
def _group_create(service: Any, group: tuple[str, str]) -> Any:
    """Create a group."""
    return service.groups.create(LOCAL_OPERATOR, *group)


@command(group, "list", _ORG, page_options, example="group list acme")
def _group_list(service: Any, name: str, after: str, limit: int) -> Any:
    """List the groups of an organisation with their members."""
    return service.groups.list(LOCAL_OPERATOR, name, after=after, limit=limit)


@command(group, "add", _GROUP, _NAME, example="group add acme/eng alice")
def _group_add(service: Any, group: tuple[str, str], member: str) -> Any:
    """Add a user or service account of the organisation to a group."""
    return service.groups.set_member(LOCAL_OPERATOR, *group, member, inside=True)


@command(group, "remove", _GROUP, _NAME, example="group remove acme/eng alice")
def _group_remove(service: Any, group: tuple[str, str], member: str) -> Any:
    """Take a member out of a group: the next request no longer reads its documents."""
    return service.groups.set_member(LOCAL_OPERATOR, *group, member, inside=False)


@command(group, "delete", _GROUP, example="group delete acme/eng")
def _group_delete(service: Any, group: tuple[str, str]) -> Any:
    """Delete a group. Withdraw its documents, or change their audience, first."""
    return service.groups.delete(LOCAL_OPERATOR, *group)


@click.group()
def role() -> None:
    """Roles: operator, org_admin, publisher, public_publisher, member."""


@command(role, "grant", _ACCOUNT, _ROLE, example="role grant acme/alice publisher")
def _role_grant(service: Any, account: tuple[str, str], role: str) -> Any:
    """Give a user or service account a role."""
    return service.accounts.set_role(LOCAL_OPERATOR, *account, role, held=True)


@command(role, "revoke", _ACCOUNT, _ROLE, example="role revoke acme/alice publisher")
def _role_revoke(service: Any, account: tuple[str, str], role: str) -> Any:
    """Take a role from a user or service account."""
    return service.accounts.set_role(LOCAL_OPERATOR, *account, role, held=False)
