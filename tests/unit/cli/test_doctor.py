"""`scopekv doctor` over files that make no deployment: one finding, and never a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from scopekv.cli.doctor import doctor

ENGINE = '[[instances]]\nname = "a"\napi_key = "k"\nurl = "{}"\n'


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"instances = []", "[[instances]]"),  # which a table would take for markup
        (ENGINE.format("ftp://x").encode(), "'ftp://x' is not an http or https base URL"),
        ("# é".encode("latin-1"), "'utf-8' codec can't decode"),
        (b"\xef\xbb\xbfport = 'x'\n", "Expected `int`, got `str` - at `$.port`"),
    ],
)
def test_what_is_wrong_with_a_file_is_a_finding(tmp_path: Path, content: bytes, says: str) -> None:
    file = tmp_path / "scopekv.toml"
    file.write_bytes(b"port = 0\n" + content if content.startswith(b"[[") else content)
    result = CliRunner().invoke(
        doctor, ["--config", str(file), "--data-dir", str(tmp_path)], env={"COLUMNS": "400"}
    )
    assert result.exit_code == 1
    assert says in result.output
    assert "Traceback" not in result.output
