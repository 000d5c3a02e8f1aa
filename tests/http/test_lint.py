"""`scopekv lint` and a gateway with a simulated engine agree on every prepared prompt."""

from __future__ import annotations

from pathlib import Path

import pytest

from scopekv.simulate.stage import Stage
from tests.unit.gateway.prompts_log import expected, measured

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]


async def test_lint_expects_what_is_read_to_the_token(
    stage: Stage, model_dir: Path, tmp_path: Path
) -> None:
    found = await measured(stage.client, stage.deployment.account("linted", "lea", service=True))
    assert found == await expected(stage.client.model, model_dir, tmp_path)
    assert sum(read for _, read in found) > 0
