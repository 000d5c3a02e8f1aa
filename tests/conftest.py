"""Fixtures that more than one folder of tests shares."""

import os
from pathlib import Path

import pytest

from scopekv.engines.model import ensure_model


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
    return ensure_model(data_dir)
