"""Fixtures of tests over HTTP."""

from __future__ import annotations

import pytest_asyncio

from scopekv.simulate.browser import Browser, logged_in
from scopekv.simulate.stage import Stage

Keys = dict[str, str]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browsers(stage: Stage, keys: Keys) -> dict[str, Browser]:
    keys["anna"] = stage.deployment.account("acme", "anna", roles=["org_admin"])
    return {
        name: await logged_in(stage.deployment.url, keys[name])
        for name in ("alice", "pat", "anna", "root")
    }
