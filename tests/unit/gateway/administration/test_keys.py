"""API keys through the service: shown once, kept nowhere, never brought back to life."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from scopekv.core.administration import api_key_digest
from scopekv.errors import Conflict, Misuse, NotFound, ScopeDenied
from scopekv.gateway.administration import LOCAL_OPERATOR

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
        world.service.keys.delete(mia, world.key("mia").key.id)
