"""`scopekv audit isolation` in wrong hands: it says what to do, and shows no key."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from scopekv.cli.main import main


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "nothing to audit"),
        (("--key", "a/b=sk-secret"), "--key needs --url"),
        (("--tiers", "floppy"), "it takes engine, host"),
        (("--url", "http://127.0.0.1:9"), "there is no registry at"),
        (("--url", "http://127.0.0.1:9", "--key", "sk-secret"), "a --key is ORG/NAME=KEY"),
        (("--url", "http://127.0.0.1:9", "--key", "a/b=sk-secret"), "keys of two accounts"),
        (("--url", "http://127.0.0.1:9", "--key", "a/b=@nowhere"), "cannot read the key of a/b"),
    ],
)
def test_wrong_use_says_what_to_do(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    environment = {"SCOPEKV_DATA_DIR": str(tmp_path), "SCOPEKV_REGISTRY": ""}
    done = CliRunner().invoke(main, ["audit", "isolation", *arguments], env=environment)
    assert done.exit_code == 64
    assert words in done.output
    assert "sk-secret" not in done.output
    assert list(tmp_path.iterdir()) == []
