"""`scopekv audit verify`, and what all audit verbs do with exit codes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from scopekv.adapters.ed25519 import TicketSigner
from scopekv.audit.report import Report, write_report
from scopekv.cli.audit import AuditGroup, audit
from scopekv.errors import ConfigError, Unavailable

SIGNER = TicketSigner(b"\x07" * 32)


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(audit, [str(one) for one in arguments])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    report = Report(results=(), command="scopekv audit run", started_at=0, ended_at=1)
    write_report(report, tmp_path / "report", SIGNER, force=False)
    return tmp_path / "report"


def test_without_a_key_it_says_how_little_that_shows(folder: Path) -> None:
    found = run("verify", folder)
    assert found.exit_code == 0
    assert "only that the files belong together" in found.output


def test_a_published_key_is_compared(folder: Path, tmp_path: Path) -> None:
    shown = run("verify", "--show-key", "--data-dir", tmp_path / "data")
    (tmp_path / "published.pem").write_text(shown.output)
    other = run("verify", folder, "--public-key", tmp_path / "published.pem")
    assert other.exit_code == 1
    assert "WRONG: signed by another key" in other.output
    same = run("verify", folder, "--public-key", write_key(tmp_path / "own.hex"))
    assert same.exit_code == 0
    assert "That is the key you gave." in same.output


def write_key(path: Path) -> Path:
    path.write_text(SIGNER.public_key.hex())
    return path


def test_a_changed_report_is_not_to_be_relied_on(folder: Path) -> None:
    (folder / "report.json").write_text("{}")
    found = run("verify", folder)
    assert found.exit_code == 1
    assert "WRONG: report.json was changed" in found.output
    assert "Do not rely" in found.output


def test_what_is_no_report_cannot_be_judged(tmp_path: Path) -> None:
    assert run("verify", tmp_path).exit_code == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ("verify",),
        ("verify", "/nowhere/at/all"),
        ("verify", "--no-such-option"),
        ("no-such-verb",),
        ("verify", ".", "--fingerprint", "00", "--public-key", __file__),
    ],
)
def test_wrong_use_is_neither_broken_nor_blind(arguments: tuple[str, ...]) -> None:
    assert run(*arguments).exit_code == 64


@pytest.mark.parametrize(
    "error",
    [
        ConfigError("no such file"),
        Unavailable("nobody answers"),
        click.ClickException("no"),
        RuntimeError("a fault of ours"),
        KeyboardInterrupt(),
        click.Abort(),
    ],
)
def test_no_error_ends_like_a_broken_check(error: BaseException) -> None:
    group = AuditGroup("audit", verbs={"fail": f"{__name__}:fail"})
    fail.callback = raising(error)
    found = CliRunner().invoke(group, ["fail"])
    assert found.exit_code == 2
    assert str(error) in found.output


def raising(error: BaseException) -> Callable[[], None]:
    def callback() -> None:
        raise error

    return callback


@click.command()
def fail() -> None:
    """Replaced by each test."""
