"""A simulated store, and sealed tiers over it."""

from collections.abc import Callable, Iterator

import pytest

from scopekv.simulate.object_store import SimulatedObjectStore
from scopekv.simulate.sealed_tier import TierStage, small_settings

Start = Callable[..., TierStage]


@pytest.fixture
def store() -> SimulatedObjectStore:
    return SimulatedObjectStore()


@pytest.fixture
def start(store: SimulatedObjectStore) -> Iterator[Start]:
    stages: list[TierStage] = []

    def begin(at: SimulatedObjectStore = store, **settings: object) -> TierStage:
        stages.append(
            TierStage(
                at,
                settings=small_settings(**{"stall_seconds": 60.0, **settings}),  # type: ignore[arg-type]
            )
        )
        return stages[-1].ready()

    yield begin
    for stage in stages:
        stage.store_.resume()  # type: ignore[attr-defined]
        stage.close()
