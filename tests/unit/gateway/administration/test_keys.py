"""API keys through the service: shown once, kept nowhere, never brought back to life."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from scopekv.core.administration import api_key_digest
from scopekv.core.scopes import Grant
from scopekv.errors import Conflict, Misuse, NotFound, ScopeDenied
from scopekv.gateway.administration import LOCAL_OPERATOR
from scopekv.gateway.administration.keys import OWN_KEYS_MAX

if TYPE_CHECKING:
    from tests.unit.gateway.administration.conftest import World


def test_a_key_is_shown_once_and_kept_nowhere(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    made = world.key("mia")
    assert made.secret.startswith("sk-scopekv-")
    assert made.secret not in repr(made)
    record = world.registry.key(api_key_digest(made.secret))
    assert record
    assert record.principal == world.who("mia")
    # A key given where a name belongs goes into no message, no log and no file.
    service, paste = world.service, made.secret
    for attempt in (
        lambda: service.orgs.create(LOCAL_OPERATOR, paste),
        lambda: service.orgs.show(LOCAL_OPERATOR, paste),
        lambda: service.accounts.create(LOCAL_OPERATOR, "acme", paste, service=False),
        lambda: service.documents.show(LOCAL_OPERATOR, paste),
        lambda: service.keys.delete(LOCAL_OPERATOR, paste),
        lambda: service.keys.create(LOCAL_OPERATOR, "acme", "mia", label=paste, expires_at=None),
        lambda: service.epochs.bump(LOCAL_OPERATOR, paste),
        lambda: service.accounts.set_role(LOCAL_OPERATOR, "acme", "mia", paste, held=True),
    ):
        with pytest.raises(Misuse) as caught:
            attempt()
        assert paste not in str(caught.value)
    assert paste not in caplog.text
    assert paste not in msgspec.json.encode(world.entries()).decode()
    for file in tmp_path.iterdir():
        assert paste.encode() not in file.read_bytes(), file.name


def test_rotating_replaces_a_key(world: World) -> None:
    old = world.key("mia", expires_at=world.now + 1000)
    mia = world.who("mia")
    new = world.service.keys.rotate(mia, old.key.id, overlap_seconds=60)
    assert new.key.expires_at == world.now + 1000, "rotating does not lengthen a key's life"
    before = world.registry.key(api_key_digest(old.secret))
    assert before
    assert before.expires_at == world.now + 60
    newest = world.service.keys.rotate(mia, new.key.id, overlap_seconds=0)
    assert world.registry.key(api_key_digest(new.secret)) is None
    assert world.registry.key(api_key_digest(newest.secret))
    page = world.service.keys.list(mia, "acme", owner="mia", after="", limit=9)
    assert "sk-scopekv" not in msgspec.json.encode(page).decode()
    assert len(page.data) == 2


def test_a_dead_key_is_not_brought_back(world: World) -> None:
    ended, blocked = world.key("mia", expires_at=world.now + 10), world.key("mia")
    world.now += 11
    world.service.keys.set_blocked(LOCAL_OPERATOR, blocked.key.id, True)
    for key in (ended, blocked):
        with pytest.raises(Conflict, match="cannot be rotated"):
            world.service.keys.rotate(world.who("mia"), key.key.id, overlap_seconds=0)
    with pytest.raises(Misuse, match="future"):
        world.key("mia", expires_at=world.now)


def test_a_member_touches_only_its_own_keys(world: World) -> None:
    mia = world.who("mia")
    others = world.key("pat").key.id
    with pytest.raises(NotFound):
        world.service.keys.rotate(mia, others, overlap_seconds=0)
    with pytest.raises(ScopeDenied):
        world.service.keys.list(mia, "acme", owner=None, after="", limit=9)
    with pytest.raises(ScopeDenied):
        world.service.keys.list(mia, "acme", owner="nobody", after="", limit=9)
    with pytest.raises(ScopeDenied):
        world.service.keys.set_blocked(mia, world.key("mia").key.id, True)


def test_own_keys_end_no_later_than_what_made_them(world: World) -> None:
    keys, mia = world.service.keys, world.who("mia")
    with pytest.raises(Conflict, match="ended"):
        keys.create_own(mia, label="", expires_at=None)
    world.key("mia", expires_at=world.now + 100)
    made = keys.create_own(mia, label="laptop", expires_at=None)
    assert (made.key.owner, made.key.expires_at) == ("mia", world.now + 100)
    assert keys.create_own(mia, label="", expires_at=world.now + 50).key.expires_at
    with pytest.raises(Misuse, match="at most"):
        keys.create_own(mia, label="", expires_at=world.now + 101)
    blocked = world.key("mia")
    keys.set_blocked(LOCAL_OPERATOR, blocked.key.id, True)
    with pytest.raises(Misuse, match="at most"):
        keys.create_own(mia, label="", expires_at=world.now + 101)
    keys.set_blocked(LOCAL_OPERATOR, blocked.key.id, False)
    assert keys.create_own(mia, label="", expires_at=None).key.expires_at is None
    signed_in = mia.under(Grant(None, frozenset(), world.now + 10))
    assert keys.create_own(signed_in, label="", expires_at=None).key.expires_at == world.now + 10


def test_own_keys_have_a_limit_and_are_the_owners_to_delete(world: World) -> None:
    keys, mia = world.service.keys, world.who("mia")
    first = world.key("mia")
    last = first
    for _ in range(OWN_KEYS_MAX - 1):
        last = keys.create_own(mia, label="", expires_at=None)
    with pytest.raises(Conflict, match="limit"):
        keys.create_own(mia, label="", expires_at=None)
    with pytest.raises(Conflict, match="limit"):  # the old one stays beside the new one
        keys.rotate(mia, first.key.id, overlap_seconds=60)
    first = keys.rotate(mia, first.key.id, overlap_seconds=0)
    keys.delete(mia, last.key.id)
    assert keys.create_own(mia, label="", expires_at=None).key.owner == "mia"
    with pytest.raises(NotFound):
        keys.delete(world.who("pat"), first.key.id)
    with pytest.raises(ScopeDenied):
        keys.create(mia, "acme", "mia", label="", expires_at=None)
