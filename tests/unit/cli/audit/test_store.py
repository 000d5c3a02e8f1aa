"""`scopekv audit store` as it is typed."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from scopekv.cli.main import main
from scopekv.core.sealing import make_header

SIZE = 4096
KEY = "ab" * 32


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """A data directory as an embedded deployment leaves it, without a registry."""
    dice = random.Random(9)
    folder = tmp_path / "tiers" / "engine-0" / ("r86400-" + "ab" * 12)
    folder.parent.mkdir(mode=0o700, parents=True)
    folder.mkdir(mode=0o700)
    for _ in range(3):
        path = folder / dice.randbytes(20).hex()
        path.write_bytes(make_header(dice.randbytes(12), SIZE) + dice.randbytes(SIZE + 16))
        path.chmod(0o600)
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "root.key").write_text(f"{KEY}\n")
    return tmp_path


def call(*words: str) -> Result:
    return CliRunner().invoke(main, ["audit", "store", *words])


def test_the_embedded_tiers_are_audited_by_default(data_dir: Path) -> None:
    result = call("--data-dir", str(data_dir), "--json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    names = {"objects", "bytes", "plaintext_hits", "names_confirmed", "tampers", "tampers_served"}
    assert names <= told.keys()
    assert (told["objects"], told["plaintext_hits"], told["tampers"]) == (3, 0, 0)
    assert told["verdict"] == "held"


def test_the_deployments_own_keys_are_looked_for(data_dir: Path) -> None:
    log = data_dir / "engine.log"
    log.write_text(f"DEBUG key {KEY}\n")
    log.chmod(0o600)
    result = call(
        "--data-dir", str(data_dir), "--logs", str(log), "--store", f"directory={data_dir}/tiers"
    )
    assert result.exit_code == 1
    assert "store.logs" in result.stdout
    assert KEY not in result.output


@pytest.mark.parametrize(
    "words",
    [
        ("--store", "nonsense"),
        ("--store", "directory=/", "--key", "sk-1"),
        ("--store", "directory=/", "--revoke", "acme"),
    ],
)
def test_wrong_use_is_told_apart(words: tuple[str, ...], tmp_path: Path) -> None:
    result = call("--data-dir", str(tmp_path), *words)
    assert result.exit_code == 64
    assert "Error:" in result.output


def test_without_any_store_it_says_what_to_name(tmp_path: Path) -> None:
    result = call("--data-dir", str(tmp_path))
    assert result.exit_code == 64
    assert "--store" in result.output
