"""`scopekv keys` makes what is missing and hands engines nothing that can sign."""

from __future__ import annotations

import stat
from pathlib import Path

from click.testing import CliRunner

from scopekv.cli.main import main
from scopekv.compose import open_world


def run(*arguments: str) -> str:
    answer = CliRunner().invoke(main, ["keys", *arguments])
    assert answer.exit_code == 0, answer.output
    return answer.output


def test_engines_get_the_public_list_and_the_brokers_secret_alone(tmp_path: Path) -> None:
    own, theirs = tmp_path / "own", tmp_path / "theirs"
    shown = run("--data-dir", str(own), "--for-engines", str(theirs))
    found = {path.name: path for path in theirs.iterdir()}
    assert set(found) == {"instance.key", "ticket-keys.json"}
    assert stat.S_IMODE(found["instance.key"].stat().st_mode) == 0o600
    for key in (own / "keys").glob("*.key"):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
        assert key.read_text().strip() not in shown


def test_what_is_there_stays_and_is_what_a_gateway_uses(tmp_path: Path) -> None:
    run("--data-dir", str(tmp_path))
    before = {path.name: path.read_bytes() for path in (tmp_path / "keys").iterdir()}
    run("--data-dir", str(tmp_path), "--for-engines", str(tmp_path / "theirs"))
    world = open_world(tmp_path, f"sqlite:///{tmp_path / 'registry.db'}")
    world.registry.close()
    assert {path.name: path.read_bytes() for path in (tmp_path / "keys").iterdir()} == before
