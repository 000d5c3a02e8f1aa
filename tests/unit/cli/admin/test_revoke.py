"""`scopekv admin revoke` and `receipts`: on a registry alone, and with a gateway at work on it."""

from __future__ import annotations

import asyncio
import importlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from click.testing import CliRunner, Result

from scopekv.cli.main import main
from scopekv.gateway.administration import LOCAL_OPERATOR
from scopekv.simulate.model import SimulatedModel
from scopekv.simulate.stage import Stage, until

Run = Callable[..., Result]
verb = importlib.import_module("scopekv.cli.admin.revoke")  # the package has its group by the name


def invoke(data: Path, *arguments: str) -> Result:
    environment = {"SCOPEKV_DATA_DIR": str(data), "SCOPEKV_REGISTRY": ""}
    return CliRunner().invoke(main, ["admin", *arguments], env=environment)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A registry that no gateway reads."""
    monkeypatch.setattr(verb, "NO_GATEWAY_SECONDS", 0.2)

    def call(*arguments: str) -> Result:
        return invoke(tmp_path, *arguments)

    call("org", "create", "acme")
    call("user", "create", "acme/alice")
    call("group", "create", "acme/eng")
    return call


def test_without_a_gateway_it_is_revoked_but_no_success(run: Run) -> None:
    result = run("revoke", "user", "acme/alice", "--json")
    assert result.exit_code == 3
    assert "no gateway is running: it is purged when one starts" in result.stderr
    assert "scopekv admin receipts show" in result.stderr
    made = json.loads(result.stdout)
    assert made["receipt"]["state"] == "pending"
    assert json.loads(run("epoch", "show", "user:acme/alice", "--json").stdout)["epoch"] == 1
    listed = json.loads(run("receipts", "list", "--json").stdout)["data"]
    assert [one["id"] for one in listed] == [made["receipt"]["id"]]


@pytest.mark.parametrize(
    "arguments",
    [
        ("user", "acme/alice", "--erase"),
        ("session", "acme/alice", "s1", "--end-user", "e"),
        ("membership", "acme/eng", "acme/alice"),
        ("org", "acme"),
    ],
)
def test_each_kind_leaves_a_receipt(run: Run, arguments: tuple[str, ...]) -> None:
    result = run("revoke", *arguments, "--wait", "0")
    assert result.exit_code == 3, result.output
    assert "rcp_" in result.stdout
    assert len(json.loads(run("receipts", "list", "--json").stdout)["data"]) == 1


def test_errors_are_one_line(run: Run) -> None:
    for arguments in (("user", "acme/nobody"), ("document", "nothing"), ("org", "nowhere")):
        result = run("revoke", *arguments)
        assert result.exit_code == 1
        assert result.stderr.startswith("Error: ")
    assert run("revoke", "membership", "acme/eng", "globex/bob").exit_code == 2
    assert run("receipts", "show", "rcp_none").exit_code == 1
    assert run("receipts", "close", "rcp_none").exit_code == 2, "a reason is needed"


def test_closing_shows_and_is_logged(run: Run) -> None:
    uid = json.loads(run("revoke", "org", "acme", "--wait", "0", "--json").stdout)["receipt"]["id"]
    closed = run("receipts", "close", uid, "--reason", "every engine was wiped")
    assert closed.exit_code == 0
    assert "closed" in closed.stdout
    assert "every engine was wiped" in run("audit", "list").stdout
    assert run("receipts", "list").exit_code == 0


def test_other_acts_name_their_receipt(run: Run) -> None:
    run("group", "add", "acme/eng", "alice")
    assert "rcp_" in run("group", "remove", "acme/eng", "alice").stdout
    deleted = run("user", "delete", "acme/alice")
    assert deleted.stdout.startswith("deleted usr_")
    assert "rcp_" in deleted.stderr


@pytest_asyncio.fixture
async def stage(
    tmp_path: Path, model: SimulatedModel, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Stage]:
    """A gateway over two engines, on the registry that the command line opens."""
    monkeypatch.setattr("scopekv.gateway.purge_calls.AWAY_SECONDS", 0.1)
    async with Stage(tmp_path, model, plugins=(True, True)) as made:
        made.deployment.gateway.revoker.calls.seconds = 0.2
        made.deployment.account("acme", "alice")
        yield made


async def test_a_running_gateway_notices_and_confirms(stage: Stage, tmp_path: Path) -> None:
    async def call(*arguments: str) -> Any:
        return await asyncio.to_thread(invoke, tmp_path, *arguments)

    done = await call("revoke", "user", "acme/alice")
    assert done.exit_code == 0, done.output
    for word in ("engine-0", "engine-1", "done", "keys destroyed"):
        assert word in done.stdout
    stage.engines[1].behaviour.paused = True
    try:
        result = await call("revoke", "user", "acme/alice", "--wait", "1", "--json")
        assert result.exit_code == 3
        receipt = json.loads(result.stdout)["receipt"]
        show = stage.deployment.administration.receipts.show
        await until(lambda: show(LOCAL_OPERATOR, receipt["id"]).state == "incomplete")
    finally:
        stage.engines[1].behaviour.paused = False
    await stage.deployment.gateway.revoker.settled(receipt["id"], 60)
    shown = await call("receipts", "show", receipt["id"], "--json")
    assert json.loads(shown.stdout)["state"] == "done"
