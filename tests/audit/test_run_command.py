"""`scopekv audit run` as a process of its own, beside a running deployment and a foreign one."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

import pytest

from scopekv.audit.report import verify_report
from tests.audit.conftest import Audited, Open
from tests.audit.test_isolation_command import COMMAND, left, write_config


async def start(stage: Audited, folder: Path, *arguments: str) -> Process:
    config = write_config(folder / "scopekv.toml", stage)
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", COMMAND, "audit", "run", "--out", str(folder / "report")),
        *("--config", str(config), *arguments),
        env=os.environ | {"SCOPEKV_DATA_DIR": str(folder), "SCOPEKV_REGISTRY": ""},
        stdout=PIPE,
        stderr=PIPE,
    )


@pytest.mark.slow
async def test_one_command_leads_to_a_signed_report(audited: Open, tmp_path: Path) -> None:
    async with audited() as stage:
        process = await start(stage, tmp_path, "--only", "isolation", "--seed", "7", "--json")
        out, err = await process.communicate()
        assert left(stage.deployment, "00000007") == []
        secrets = [*stage.target.keys.values(), *(one.api_key for one in stage.target.engines)]
    assert process.returncode == 0, err.decode()
    found = json.loads(out)
    (isolation,) = found["audits"]
    assert isolation["cells_forbidden"] > 100
    assert "isolation.restart.engine-0" in {check["name"] for check in isolation["checks"]}
    assert {"The store audit", "The timing audit"} <= {one["what"] for one in found["not_tested"]}
    assert verify_report(tmp_path / "report", found["fingerprint"]).exit_code == 0
    for path in (tmp_path / "report").iterdir():
        assert not [one for one in secrets if one.encode() in path.read_bytes()]


@pytest.mark.slow
async def test_the_store_audit_has_an_administrator_and_a_stolen_ticket(
    audited: Open, tmp_path: Path, valkey_url: str
) -> None:
    async with audited(urls=("directory", valkey_url)) as stage:
        store = ("--store", f"directory={tmp_path}/tier-0")
        process = await start(stage, tmp_path, "--only", "store", "--seed", "9", "--json", *store)
        out, err = await process.communicate()
        assert left(stage.deployment, "00000009") == []
    assert process.returncode == 0, err.decode()
    (found,) = json.loads(out)["audits"]
    verdicts = {check["name"]: check["verdict"] for check in found["checks"]}
    assert verdicts["store.tamper.old_epoch"] == verdicts["store.metrics"] == "held"
    told = {one["what"] for one in found["not_tested"]}
    assert "the valkey tier" in told  # which no --store names
    assert not told & {
        "the directory tier",
        "known prompts",
        "folders that name a known scope",
        "names that a stolen engine could compute",
        "the deployment's own keys",
    }


@pytest.mark.slow
async def test_ctrl_c_in_the_timing_audit_withdraws_what_it_published(
    audited: Open, tmp_path: Path
) -> None:
    async with audited() as stage:
        process = await start(stage, tmp_path, "--seed", "6", "--only", "timing")
        while not left(stage.deployment, "timing"):
            await asyncio.sleep(0.05)
        for _ in range(3):  # an impatient one
            process.send_signal(signal.SIGINT)
            await asyncio.sleep(0.01)
        await process.communicate()
        assert process.returncode == 2
        assert left(stage.deployment, "timing") == left(stage.deployment, "00000006") == []


@pytest.mark.slow
async def test_ctrl_c_leaves_a_report_and_nothing_else(audited: Open, tmp_path: Path) -> None:
    async with audited() as stage:
        process = await start(stage, tmp_path, "--seed", "8", "--only", "isolation,timing")
        for _ in range(600):
            if len(left(stage.deployment, "00000008")) > 3:
                break  # it has published documents by now
            await asyncio.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, err = await process.communicate()
        assert process.returncode == 2, err.decode()
        assert left(stage.deployment, "00000008") == []
    told = json.loads((tmp_path / "report" / "report.json").read_text())
    assert not told["complete"]
    isolation, timing = told["audits"]
    assert (isolation["complete"], isolation["verdict"]) == (False, "blind")
    assert timing["checks"][0]["summary"] == "not begun: interrupted"
    assert verify_report(tmp_path / "report", None).exit_code == 0
