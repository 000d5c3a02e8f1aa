"""`scopekv admin`, through click, on a registry of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from scopekv.cli.admin import admin
from scopekv.cli.main import main
from scopekv.cli.options import default_data_dir, registry_url

Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    def call(*arguments: str, stdin: bytes | None = None) -> Result:
        environment = {"SCOPEKV_DATA_DIR": str(tmp_path / "data"), "SCOPEKV_REGISTRY": ""}
        return CliRunner().invoke(main, ["admin", *arguments], input=stdin, env=environment)

    return call


def ok(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_mistyped_directory_is_told_also_where_the_command_fails(
    run: Run, tmp_path: Path
) -> None:
    told = f"made a new registry at {tmp_path / 'data' / 'registry.db'}"
    result = run("revoke", "user", "acme/alice")
    assert result.exit_code == 1
    assert told in result.stderr
    assert told not in run("revoke", "user", "acme/alice").stderr


def test_a_first_day(run: Run, tmp_path: Path) -> None:
    ok(run("org", "create", "acme", "--json"))
    ok(run("user", "create", "acme/alice", "--json"))
    ok(run("service-account", "create", "acme/bot", "--json"))
    ok(run("group", "create", "acme/eng", "--json"))
    assert ok(run("group", "add", "acme/eng", "alice", "--json"))["members"] == ["alice"]
    assert "publisher" in ok(run("role", "grant", "acme/alice", "publisher", "--json"))["roles"]
    made = ok(run("key", "create", "acme/alice", "--label", "l", "--expires-in", "90d", "--json"))
    assert made["secret"].startswith("sk-scopekv-")
    made = ok(run("key", "rotate", made["key"]["id"], "--overlap", "1h", "--json"))
    assert len(ok(run("key", "list", "acme", "--owner", "alice", "--json"))["data"]) == 2
    file = tmp_path / "handbook.md"
    file.write_bytes(b"\xef\xbb\xbfline\r\nend")
    arguments = ("--audience", "org:acme", "--name", "handbook", "--json")
    document = ok(run("document", "publish", str(file), *arguments))
    assert run("document", "text", "handbook").stdout_bytes == file.read_bytes()
    assert ok(run("document", "revise", "handbook", "-", "--json", stdin=b"new"))["revision"] == 2
    shown = ok(run("document", "show", document["id"], "--json"))
    assert (shown["epoch"], len(shown["revisions"])) == (1, 2)
    ok(run("document", "audience", "handbook", "--audience", "public", "--json"))
    ok(run("document", "withdraw", "handbook", "--json"))
    assert ok(run("document", "list", "--json"))["data"] == []
    assert len(ok(run("document", "list", "--withdrawn", "--json"))["data"]) == 1
    assert ok(run("rules", "set", "acme", "--system", "user", "--json"))["system"] == "user"
    assert ok(run("epoch", "bump", "org:acme", "--json"))["epoch"] == 1
    ok(run("user", "block", "acme/alice", "--json"))
    ok(run("user", "delete", "acme/alice", "--json"))
    ok(run("org", "delete", "acme", "--json"))
    entries = ok(run("audit", "list", "--json"))["data"]
    assert all(entry["actor"].startswith("local ") for entry in entries)
    assert made["secret"] not in json.dumps(entries)
    assert ok(run("audit", "verify", "--json"))["intact"] is True


def test_tables_are_for_people(run: Run) -> None:
    run("org", "create", "acme")
    run("user", "create", "acme/alice")
    assert "acme" in run("org", "list").stdout
    created = run("key", "create", "acme/alice", "--label", "[bold]x[/bold]")
    assert created.stdout.count("sk-scopekv-") == 1
    assert "only time" in created.stderr
    listed = run("key", "list", "acme").stdout
    assert "[bold]x[/bold]" in listed, "a label is text, not markup"
    assert "sk-scopekv-" not in listed
    assert run("document", "list").stdout == "none\n"
    for command in (("user", "list", "acme"), ("rules", "show", "acme"), ("audit", "list")):
        assert run(*command).exit_code == 0


def test_an_error_of_ours_is_one_line_on_stderr(run: Run) -> None:
    ok(run("org", "list", "--json"))
    for arguments, says in (
        (("org", "show", "nobody"), "does not exist"),
        (("org", "create", "a b"), "is not a name"),
        (("document", "publish", "/nowhere", "--audience", "public", "--name", "x"), "cannot be"),
        (("document", "publish", "-", "--audience", "all", "--name", "x"), "org:ORG"),
        (("org", "list", "--registry", "mysql://host/db"), "postgresql://"),
    ):
        result = run(*arguments, stdin=b"text")
        assert result.exit_code == 1, result.output
        assert result.stdout == ""
        assert result.stderr.startswith("Error: ")
        assert says in result.stderr
        assert "Traceback" not in result.output


def test_text_that_is_not_utf8_is_refused(run: Run) -> None:
    result = run("document", "publish", "-", "--audience", "public", "--name", "x", stdin=b"ab\xff")
    assert result.exit_code == 1
    assert "not UTF-8 text (byte 2)" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("org",),
        ("org", "create"),
        ("user", "create", "alice"),
        ("role", "grant", "acme/alice", "king"),
        ("key", "create", "acme/alice", "--expires-in", "soon"),
        ("rules", "set", "acme"),
        ("org", "list", "--limit", "0"),
        ("nonsense",),
    ],
)
def test_wrong_usage_exits_with_2(run: Run, arguments: tuple[str, ...]) -> None:
    assert run(*arguments).exit_code == 2


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name)


@pytest.mark.parametrize("path", list(commands(admin)), ids=" ".join)
def test_every_command_teaches_and_speaks_json(run: Run, path: tuple[str, ...]) -> None:
    text = run(*path, "--help").stdout
    assert f"scopekv admin {' '.join(path)}" in text.split("Example:")[1]
    where = ("--gateway", "--api-key") if path[0] == "instance" else ("--registry", "--data-dir")
    for option in ("--json", *where):
        assert option in text


def test_a_broken_log_exits_with_1(run: Run, tmp_path: Path) -> None:
    for name in ("acme", "globex"):
        run("org", "create", name)
    code = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]);"
        "c.execute('DROP TRIGGER scopekv_audit_no_update');"
        "c.execute(\"UPDATE scopekv_audit SET resource = 'org:x' WHERE seq = 2\"); c.commit()"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "data/registry.db")], check=True)
    result = run("audit", "verify", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["intact"] is False
    assert "entry 2" in result.stderr


def test_where_the_registry_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert default_data_dir() == tmp_path / "scopekv"
    assert registry_url(None, None) == f"sqlite:///{tmp_path}/scopekv/registry.db"
    assert registry_url(None, tmp_path) == f"sqlite:///{tmp_path}/registry.db"
    assert registry_url("postgresql://h/d", tmp_path) == "postgresql://h/d"
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_data_dir() == tmp_path / ".local/share/scopekv"


def test_help_needs_no_database() -> None:
    """--help stays quick: SQLAlchemy and Alembic are not loaded for it."""
    code = "import sys, scopekv.cli.main; print([m for m in sys.modules if 'alchemy' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
