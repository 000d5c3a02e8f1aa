"""The managers of one engine's scheduler, with the plugin installed for the length of a test.

vLLM is imported by the first test that runs, not when tests are collected: it takes its time, and
warns of itself.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from scopekv.adapters.ed25519 import write_public_keys
from scopekv.core.blocks import Namespace
from scopekv.engines.vllm.plugin import Guard
from scopekv.engines.vllm.settings import PluginSettings
from tests.engine.offloading.parts import CHUNK_TOKENS, SIGNER

if TYPE_CHECKING:
    from tests.engine.offloading.world import World

HOME = Namespace("m", "r", "t", "float32", "auto", CHUNK_TOKENS, "l", "sha256_cbor")


class Build(Protocol):
    def __call__(self, **settings: Any) -> World: ...


@pytest.fixture(scope="session")
def building() -> Any:
    """The module that knows vLLM."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module("tests.engine.offloading.building")


@pytest.fixture
def guard(tmp_path: Path) -> Guard:
    write_public_keys(tmp_path / "keys.json", [SIGNER.public_key])
    made = Guard(PluginSettings(tmp_path / "keys.json"))
    made.bind(HOME)
    return made


@pytest.fixture
def make(building: Any, guard: Guard) -> Iterator[Build]:
    """Build a world: `make(chunks=64, stores=1, shared=False, broker=True)`."""
    made: list[World] = []
    with building.installed(guard) as clock:

        def one(**settings: Any) -> World:
            made.append(building.build(guard, clock, **settings))
            return made[-1]

        yield one
        for world in made:
            world.close()


@pytest.fixture
def world(make: Build) -> World:
    """One outer tier that nobody else writes to, user `u` with a lease."""
    made = make()
    made.lease("u")
    return made
