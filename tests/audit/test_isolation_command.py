"""`scopekv audit isolation` as a process of its own, beside a running deployment."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from typing import Any

import pytest

from scopekv.cli.audit.registrar import PREFIX
from scopekv.gateway.administration import LOCAL_OPERATOR
from scopekv.simulate.deployment import Deployment
from tests.audit.conftest import Audited, Open

COMMAND = "from scopekv.cli.main import main; main()"


async def start(data_dir: Path, *arguments: str) -> Process:
    environment = os.environ | {"SCOPEKV_DATA_DIR": str(data_dir), "SCOPEKV_REGISTRY": ""}
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", COMMAND, "audit", "isolation", *arguments),
        env=environment,
        stdout=PIPE,
        stderr=PIPE,
    )


def write_config(path: Path, stage: Audited) -> Path:
    """The file that the gateway would have been started with."""
    lines = [f"port = {stage.deployment.gateway.port}"]
    for engine in stage.target.engines:
        lines += ["[[instances]]", f'name = "{engine.name}"', f'url = "{engine.url}"']
        lines.append(f'api_key = "{engine.api_key}"')
    path.write_text("\n".join(lines))
    return path


def left(deployment: Deployment, run: str) -> list[Any]:
    """Organisations and documents of an audit that are still there."""
    admin = deployment.administration
    orgs = admin.orgs.list(LOCAL_OPERATOR, after="", limit=1000).data
    documents = admin.documents.list(LOCAL_OPERATOR, after="", limit=1000, withdrawn=False).data
    return [one for one in (*orgs, *documents) if getattr(one, "name", "").startswith(PREFIX + run)]


@pytest.mark.slow
async def test_the_gateways_own_file_is_enough_and_all_is_removed(
    audited: Open, tmp_path: Path
) -> None:
    async with audited() as stage:
        config = write_config(tmp_path / "scopekv.toml", stage)
        process = await start(tmp_path, "--config", str(config), "--quick", "--json", "--seed", "7")
        out, err = await process.communicate()
        assert process.returncode == 0, err.decode()
        assert left(stage.deployment, "00000007") == []
    found = json.loads(out)
    assert (found["audit"], found["verdict"], found["seed"]) == ("isolation", "held", 7)
    assert found["forbidden_hits"] == found["allowed_misses"] == 0
    assert found["cells_forbidden"] > 100
    assert any(check["name"].startswith("isolation.tickets.") for check in found["checks"])


@pytest.mark.slow
async def test_a_registry_in_postgresql_is_audited_as_any_other(
    audited: Open, tmp_path: Path, postgres_url: str
) -> None:
    """All that changes; the registry is named, and then stands in the gateway's file."""
    async with audited(registry=postgres_url) as stage:
        assert not stage.deployment.registry_file.exists()
        config = write_config(tmp_path / "up.toml", stage)
        named = await start(tmp_path, "--registry", postgres_url, "--json", "--seed", "5")
        out, err = await named.communicate()
        assert named.returncode == 0, err.decode()
        config.write_text(f'registry = "{postgres_url}"\n{config.read_text()}')
        quick = ("--config", str(config), "--quick", "--json", "--seed", "6")
        again = await start(tmp_path, *quick)
        more, err = await again.communicate()
        assert again.returncode == 0, err.decode()
        assert left(stage.deployment, "0000000") == []
    for found in (json.loads(out), json.loads(more)):
        assert found["verdict"] == "held"
        assert found["forbidden_hits"] == found["allowed_misses"] == 0
        assert found["cells_allowed"] > 50
    names = {check["name"] for check in json.loads(out)["checks"]}
    assert {"isolation.restart.engine-0", "isolation.tickets.forged"} <= names


@pytest.mark.slow
async def test_ctrl_c_removes_everything_and_exits_with_130(audited: Open, tmp_path: Path) -> None:
    async with audited() as stage:
        config = write_config(tmp_path / "up.toml", stage)  # read where no file is named
        assert config.exists()
        process = await start(tmp_path, "--seed", "8")
        for _ in range(600):
            if len(left(stage.deployment, "00000008")) > 3:
                break  # it has published documents by now
            await asyncio.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, err = await process.communicate()
        assert process.returncode == 130, err.decode()
        assert "interrupted" in err.decode()
        assert left(stage.deployment, "00000008") == []


@pytest.mark.slow
async def test_keys_alone_test_what_they_allow(audited: Open, tmp_path: Path) -> None:
    async with audited() as stage:
        deployment = stage.deployment
        keys = [f"acme/{name}={deployment.account('acme', name)}" for name in ("alice", "ann")]
        secret = tmp_path / "bob.key"
        secret.write_text(deployment.account("globex", "bob") + "\n")
        keys.append(f"globex/bob=@{secret}")
        options = [word for key in keys for word in ("--key", key)]
        process = await start(tmp_path, "--url", deployment.url, *options, "--quick", "--json")
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    found = json.loads(out)
    names = {check["name"] for check in found["checks"]}
    assert {"isolation.any.user", "isolation.any.org_text", "isolation.any.session"} <= names
    told = {one["what"] for one in found["not_tested"]}
    assert {"documents of every audience", "the engine tier alone"} <= told
