"""`scopekv admin`: organisations, accounts, keys, documents, rules, revocations, the audit log."""

from __future__ import annotations

import click

from scopekv.cli.admin.documents import document
from scopekv.cli.admin.instances import instance
from scopekv.cli.admin.keys import key
from scopekv.cli.admin.oversight import audit, epoch, rules
from scopekv.cli.admin.principals import group, org, role, service_account, user
from scopekv.cli.admin.receipts import receipts
from scopekv.cli.admin.revoke import revoke
from scopekv.cli.admin.scope_keys import scope_keys

__all__ = ["admin"]


@click.group()
def admin() -> None:
    """Administer the registry.

    Whoever can open the registry is its operator: the audit log names `local`.

    \b
    A first organisation with a user, a key and a document:
      scopekv admin org create acme
      scopekv admin user create acme/alice
      scopekv admin key create acme/alice --label laptop
      scopekv admin document publish handbook.md --audience org:acme --name handbook
    """


for _command in (
    *(org, user, service_account, group, role, key, document),
    *(rules, revoke, receipts, epoch, scope_keys, instance, audit),
):
    admin.add_command(_command)
