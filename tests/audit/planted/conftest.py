"""A deployment with tiers for the tests of audits and of planted faults."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from scopekv.simulate.model import SimulatedModel
from scopekv.simulate.stage import Stage
from tests.audit.planted.world import tiered


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def tiers(
    tmp_path_factory: pytest.TempPathFactory, model: SimulatedModel
) -> AsyncIterator[Stage]:
    """One deployment for a file: its tests use accounts and prompts of their own."""
    async with tiered(tmp_path_factory.mktemp("tiers"), model) as stage:
        yield stage
