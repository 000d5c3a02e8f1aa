"""Fixtures that more than one folder of tests shares."""

from __future__ import annotations

import gc
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import pytest_asyncio
from hypothesis import settings

if TYPE_CHECKING:  # a second of whoever hands out the tests to workers and runs none
    from scopekv.gateway.model_text import Built
    from scopekv.simulate.model import SimulatedModel
    from scopekv.simulate.stage import Stage
    from tests.prompt_tokenizers import PromptTokenizers

Keys = dict[str, str]

# `make check` looks with fewer examples than `make test`, and both with the same ones each time: no
# run fails by chance. `pytest --hypothesis-profile=search` looks with new ones.
settings.register_profile("search", max_examples=200, deadline=None)
settings.register_profile("full", max_examples=200, deadline=None, derandomize=True)
settings.register_profile("check", max_examples=30, deadline=None, derandomize=True)
settings.load_profile("full")


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """A kept data directory, so that the model is converted once per clone, not once per run.

    Holds only what is costly and the same for every run (the model, vLLM's caches). Tests that
    write anything else take `tmp_path`.
    """
    chosen = os.environ.get("SCOPEKV_DATA_DIR")
    path = Path(chosen) if chosen else Path(__file__).parents[1] / ".venv" / "scopekv-data"
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


@pytest.fixture(scope="session")
def model_dir(data_dir: Path) -> Path:
    """The converted SmolLM2 folder; skips where the package with its weights is not installed."""
    pytest.importorskip("gguf", reason="needs the engine-cpu extra")
    from scopekv.engines.model import ensure_model

    return ensure_model(data_dir)


@pytest.fixture(scope="session")
def model(model_dir: Path) -> SimulatedModel:
    from scopekv.simulate.model import SimulatedModel

    return SimulatedModel.load(model_dir, max_model_len=2048)


@pytest.fixture(scope="session")
def prompt_tokenizers() -> PromptTokenizers:
    from tests.prompt_tokenizers import PromptTokenizers

    return PromptTokenizers()


@pytest.fixture(scope="session", autouse=True)
def templates_read_once(prompt_tokenizers: PromptTokenizers) -> Iterator[None]:
    """Gateways of one run share what they make of an engine's texts: a second of work each."""
    from scopekv.gateway.model_text import built as read_template

    made: dict[bytes, Built] = {}

    async def built(told: dict[str, Any]) -> Built:
        texts = {name: told[name] for name in told.keys() - {"models", "max_model_len"}}
        name = msgspec.json.encode(texts, order="sorted")
        if name not in made:
            made[name] = await read_template(told)
        return made[name]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("scopekv.gateway.health.built", built)
        patch.setattr("scopekv.gateway.model_text.load_tokenizer", str)
        patch.setattr("scopekv.gateway.model_text.PromptTokenizer", prompt_tokenizers.of)
        yield


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(
    tmp_path_factory: pytest.TempPathFactory, model: SimulatedModel
) -> AsyncIterator[Stage]:
    """One stage for a file: its tests use prompts of their own, and leave it as they found it."""
    from scopekv.simulate.stage import Stage

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


# Left out of `make check`: databases, processes, and tests that start pytest anew.
_SLOW = (
    "contracts/",
    "cases/test_planted_leak",
    "unit/engines/test_",
    "unit/cli/test_bench",
    "unit/cli/test_lint",
    "http/test_doctor",
)


def pytest_configure() -> None:
    """Fewer garbage collections: as many as there are by default take a tenth of a run."""
    gc.set_threshold(20_000, 20, 20)


def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end: no garbage collection reads it again."""
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if str(item.path.relative_to(here)).startswith(_SLOW):
            item.add_marker(pytest.mark.slow)
