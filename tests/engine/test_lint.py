"""What `scopekv lint` expects to be read from the cache is what the engine reads, to the token."""

from __future__ import annotations

from pathlib import Path

import pytest

from scopekv.simulate.client import PlainClient
from scopekv.simulate.deployment import Deployment
from tests.unit.gateway.prompts_log import MORE, expected, measured

pytestmark = [
    pytest.mark.engine,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(1200),  # seventy-nine requests, and the engine's start
]


async def test_lint_agrees_with_the_engine_to_the_token(
    client: PlainClient, deployment: Deployment, model_dir: Path, tmp_path: Path
) -> None:
    found = await measured(client, deployment.account("linted", "lea", service=True))
    assert len(found) == 2 * 35 - 1 + len(MORE), "all but the one for another adapter"
    assert found == await expected(client.model, model_dir, tmp_path)
    assert sum(read for _, read in found) > 0
