"""The contract of `ports.Identities`, over SQLite and a real PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scopekv.adapters.registry import SqlRegistry
from scopekv.errors import Misuse, NotFound

if TYPE_CHECKING:
    from tests.contracts.conftest import Filler

KEY, OTHER = bytes(32), bytes(31) + b"\x01"


def test_a_link_is_replaced_and_counts_at_once(registry: SqlRegistry, fill: Filler) -> None:
    org = fill.org()
    alice, ann = (fill.account(org, name).principal.uid for name in ("alice", "ann"))
    before = registry.versions().principals
    with registry.write() as tx:
        assert tx.identities.account_uid(KEY) is None
        tx.identities.link(KEY, alice)
        tx.identities.link(OTHER, alice)
    assert registry.versions().principals > before
    with registry.write() as tx:
        tx.identities.link(KEY, ann)
    with registry.read() as view:
        assert view.identities.account_uid(KEY) == ann
        assert view.identities.account_uid(OTHER) == alice


def test_a_link_outlives_its_account(registry: SqlRegistry, fill: Filler) -> None:
    org = fill.org()
    alice = fill.account(org).principal.uid
    with registry.write() as tx:
        tx.identities.link(KEY, alice)
        tx.accounts.delete(alice)
    with registry.read() as view:
        assert view.identities.account_uid(KEY) == alice
        assert view.accounts.by_uid(alice) is None


def test_what_cannot_be_linked(registry: SqlRegistry, fill: Filler) -> None:
    alice = fill.account(fill.org()).principal.uid
    with registry.write() as tx:
        with pytest.raises(NotFound):
            tx.identities.link(KEY, "usr_nobody")
        with pytest.raises(Misuse, match="32 bytes"):
            tx.identities.link(b"short", alice)
    with registry.read() as view:
        with pytest.raises(Misuse):
            view.identities.link(KEY, alice)


def test_only_groups_that_exist_in_the_organisation(registry: SqlRegistry, fill: Filler) -> None:
    org = fill.org()
    eng = fill.group(org).name
    names = [eng, *(f"other-{number}" for number in range(1200))]
    with registry.read() as view:
        assert view.identities.existing_groups(org.uid, names) == {eng}
        assert view.identities.existing_groups("org_other", names) == frozenset()
        assert view.identities.existing_groups(org.uid, []) == frozenset()
