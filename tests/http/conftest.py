"""Fixtures of tests over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from scopekv.simulate.browser import Browser, logged_in
from scopekv.simulate.stage import Stage
from tests.http.providers_stage import ProvidersStage, providers_stage

Keys = dict[str, str]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browsers(stage: Stage, keys: Keys) -> dict[str, Browser]:
    keys["anna"] = stage.deployment.account("acme", "anna", roles=["org_admin"])
    return {
        name: await logged_in(stage.deployment.url, keys[name])
        for name in ("alice", "pat", "anna", "root")
    }


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def providers(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ProvidersStage]:
    """Both providers behind a gateway; tests use prompts of their own."""
    async with providers_stage(tmp_path_factory.mktemp("providers")) as made:
        yield made
