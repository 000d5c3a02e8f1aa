"""A furnished deployment and a real Chromium, once for all tests of this folder."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import pytest_asyncio

from scopekv.simulate.model import SimulatedModel
from scopekv.simulate.stage import Stage
from tests.browser.chromium import PROGRAM, Tab, browser
from tests.browser.scenery import furnish

Keys = dict[str, str]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.slow)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def furnished(
    tmp_path_factory: pytest.TempPathFactory, model: SimulatedModel
) -> AsyncIterator[tuple[Stage, Keys]]:
    folder = tmp_path_factory.mktemp("console")
    async with Stage(folder, model, (True, True)) as stage:
        yield stage, await furnish(stage)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def tab() -> AsyncIterator[Tab]:
    if not PROGRAM:
        pytest.skip("there is no Chromium here: scripts/browser.sh installs it")
    async with browser() as opened:
        yield opened


@pytest.fixture(scope="session")
def axe() -> str:
    """The script of axe-core: of the package axe-core-python, or the file SCOPEKV_AXE names."""
    named = os.environ.get("SCOPEKV_AXE")
    if named:
        return Path(named).read_text()
    spec = find_spec("axe_core_python")
    if spec is None or spec.submodule_search_locations is None:
        pytest.skip("axe-core is not installed: pip install axe-core-python")
    (script,) = Path(spec.submodule_search_locations[0]).rglob("axe.min.js")
    return script.read_text()
