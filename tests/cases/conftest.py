"""A real gateway in front of a simulated engine, and the people who use it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from scopekv.simulate.model import SimulatedModel
from scopekv.simulate.stage import Stage

Keys = dict[str, str]


@pytest.fixture(scope="session")
def model(model_dir: Path) -> SimulatedModel:
    return SimulatedModel.load(model_dir, max_model_len=2048)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(
    tmp_path_factory: pytest.TempPathFactory, model: SimulatedModel
) -> AsyncIterator[Stage]:
    """One stage for a file: its tests use prompts of their own, and leave it as they found it."""
    async with Stage(tmp_path_factory.mktemp("stage"), model) as made:
        yield made


@pytest.fixture(scope="module")
def keys(stage: Stage) -> Keys:
    """API keys by name. alice, ann, pat (publisher) and desk (service account) are of acme."""
    account = stage.deployment.account
    made = {
        "alice": account("acme", "alice"),
        "ann": account("acme", "ann"),
        "pat": account("acme", "pat", roles=["publisher"]),
        "desk": account("acme", "desk", service=True),
        "bob": account("globex", "bob"),
        "root": account("hq", "root", roles=["operator"]),
    }
    stage.deployment.group("acme", "eng", "alice", "ann")
    stage.deployment.group("acme", "law", "alice", "pat")
    return made
