"""`scopekv admin scope-keys` on a registry with keys in it, beside those who use them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from scopekv.adapters.vault import VaultKeyWrapper, VaultSettings
from scopekv.cli.main import main
from scopekv.compose import World, open_world
from scopekv.core.scopes import Scope, ScopeKind
from scopekv.store.scope_keys import Note, ScopeEpoch, context_of, note
from tests.contracts.vault_server import TOKEN, TransitKey, VaultServer

USERS = [Scope(ScopeKind.USER, ("org_1", f"usr_{number}")) for number in range(5)]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = open_world(tmp_path, f"sqlite:///{tmp_path / 'registry.db'}")
    yield made
    made.registry.close()


def fill(world: World) -> None:
    wanted = [ScopeEpoch(scope, 0) for scope in USERS]
    assert note(world.registry, world.wrapper, b"s" * 32, wanted, 1.0) == [Note.KEPT] * 5


def keys(world: World) -> set[bytes]:
    """Every key, opened."""
    with world.registry.read() as view:
        records = view.scope_keys.wrapped_by_others("none", 100)
    return {world.wrapper.unwrap(record.wrapped, context_of(record)) for record in records}


def run(folder: Path, *arguments: str, env: dict[str, str] | None = None) -> Any:
    command = ["admin", "scope-keys", *arguments, "--data-dir", str(folder), "--json"]
    result = CliRunner().invoke(main, command, env=env)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_rotating_and_rewrapping_lose_no_key(tmp_path: Path, world: World) -> None:
    fill(world)
    before = keys(world)
    assert run(tmp_path, "status")["by_kind"] == {"user": 5}
    rotated = run(tmp_path, "rotate")
    assert rotated["before"] != rotated["version"]
    assert rotated["to_rewrap"] == 5
    assert keys(world) == before, "a gateway at work opens them meanwhile"
    done = run(tmp_path, "rewrap", "--retire")
    assert done | {"version": ""} == {
        "version": "",
        "moved": 5,
        "unreadable": 0,
        "dropped": 0,
        "retired": 1,
    }
    assert run(tmp_path, "status") == {
        "version": rotated["version"],
        "total": 5,
        "to_rewrap": 0,
        "by_kind": {"user": 5},
        "by_version": {rotated["version"]: 5},
    }
    assert keys(world) == before
    with world.registry.read() as view:
        actions = [entry.action for entry in view.audit.list(0, 100)]
    assert actions == ["scope_keys_rotate", "scope_keys_rewrap", "scope_keys_retire"]


def test_keys_that_do_not_open_keep_the_old_root_key_alive(tmp_path: Path, world: World) -> None:
    fill(world)
    (tmp_path / "keys" / "wrap.key").unlink()
    assert run(tmp_path, "rewrap")["unreadable"] == 5
    result = CliRunner().invoke(
        main, ["admin", "scope-keys", "rewrap", "--retire", "--data-dir", str(tmp_path)]
    )
    assert result.exit_code == 1
    assert "no version was retired" in result.output
    assert run(tmp_path, "rewrap", "--drop-unreadable", "--retire")["dropped"] == 5
    assert run(tmp_path, "status")["to_rewrap"] == 0
    assert len(keys(world)) == 5, "each scope has a new key"


def test_keys_move_from_the_file_to_vault(tmp_path: Path, world: World) -> None:
    """Until they have moved, the file opens what it wrapped."""
    fill(world)
    before, config = keys(world), tmp_path / "scopekv.toml"
    with VaultServer() as server:
        server.keys["transit/kv"] = TransitKey()
        config.write_text(
            f'[[instances]]\nname = "e"\nurl = "http://h:1"\n'
            f'[vault]\naddress = "{server.url}"\nkey = "kv"\n'
        )
        env = {"VAULT_TOKEN": TOKEN}
        status = run(tmp_path, "status", "--config", str(config), env=env)
        assert (status["version"], status["to_rewrap"]) == ("vault:transit/kv:v1", 5)
        done = run(tmp_path, "rewrap", "--config", str(config), env=env)
        assert (done["moved"], done["unreadable"]) == (5, 0)
        rotated = run(tmp_path, "rotate", "--config", str(config), env=env)
        assert (rotated["version"], rotated["to_rewrap"]) == ("vault:transit/kv:v2", 5)
        (tmp_path / "keys" / "wrap.key").unlink()
        run(tmp_path, "rewrap", "--retire", "--config", str(config), env=env)
        settings = VaultSettings(server.url, key="kv")
        with closing(VaultKeyWrapper(settings, environment_token=TOKEN)) as vault:
            assert keys(replace(world, wrapper=vault)) == before
