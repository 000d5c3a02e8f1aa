"""`scopekv audit timing` as a process of its own: two organisations behind a public document."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

import pytest

from scopekv.gateway.administration import LOCAL_OPERATOR
from scopekv.simulate.model import SimulatedModel
from scopekv.simulate.stage import Stage
from tests.audit.test_isolation_command import COMMAND

pytestmark = pytest.mark.slow
TOKEN_SECONDS = 0.0006  # a hit saves more than a busy machine's stalls


async def timed(stage: Stage, folder: Path, *arguments: str) -> tuple[int | None, Any]:
    """Run it with the keys of alice (victim), bob of another organisation, and an operator."""
    account = stage.deployment.account
    keys = {
        "victim": account("acme", "alice"),
        "attacker": account("globex", "bob"),
        "admin": account("ops", "auditor", service=True, roles=["operator"]),
    }
    options = []
    for name, key in keys.items():
        path = folder / f"{name}.key"
        path.write_text(key)
        options += [f"--{name}-key", f"@{path}"]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", COMMAND, "audit", "timing", "--url", stage.deployment.url),
        *(*options, *arguments),
        env=os.environ | {"SCOPEKV_DATA_DIR": str(folder)},
        stdout=PIPE,
        stderr=PIPE,
    )
    out, err = await process.communicate()
    assert out, err.decode()
    return process.returncode, json.loads(out)


async def test_neighbours_behind_a_public_document_are_told_apart_from_nobody(
    tmp_path: Path, model: SimulatedModel
) -> None:
    sizes = ("--samples", "24", "--prompt-tokens", "72", "--attack-samples", "0", "--json")
    async with Stage(tmp_path, model) as stage:
        stage.engine.behaviour.token_seconds = TOKEN_SECONDS
        code, found = await timed(stage, tmp_path, "--level", "document", *sizes)
        documents = stage.deployment.administration.documents
        left = documents.list(LOCAL_OPERATOR, after="", limit=1000, withdrawn=False).data
    (check,) = found["checks"]
    assert (code, check["name"], check["verdict"]) == (0, "timing.document", "held")
    told = check["evidence"]["cached_tokens_max"]
    assert told["hit"] == told["miss"] >= 32  # the document, and nothing behind it
    assert told["control"] >= told["miss"] + 32
    assert not left
