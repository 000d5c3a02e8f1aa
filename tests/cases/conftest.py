"""The adapters that cases of tiers run on, tiers over them, and engines for many gateways."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pytest
import pytest_asyncio

from scopekv.ports import ObjectStore
from scopekv.simulate.model import SimulatedModel
from scopekv.simulate.sealed_tier import TierStage, small_settings
from tests.cases.gateway_site import Site, site_at
from tests.cases.tier_places import DirectoryPlace, Gate, Place, ServerPlace, SimulatedPlace
from tests.contracts.object_servers import S3Server, ValkeyServers

ServersT = TypeVar("ServersT", ValkeyServers, S3Server)
SERVERS = [pytest.param(name, marks=pytest.mark.slow) for name in ("valkey", "s3")]
PLACES = ["simulated", "directory", *SERVERS]


@contextlib.contextmanager
def _running(servers: ServersT) -> Iterator[ServersT]:
    try:
        servers.start()
        yield servers
    finally:
        servers.kill()


@pytest.fixture(scope="session")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyServers]:
    with _running(ValkeyServers(tmp_path_factory.mktemp("valkey"))) as servers:
        yield servers


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with _running(S3Server(tmp_path_factory.mktemp("s3"))) as server:
        yield server


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """An empty store of each kind in turn."""
    made: Place
    if request.param == "simulated":
        made = SimulatedPlace()
    elif request.param == "directory":
        made = DirectoryPlace(tmp_path / "objects")
    else:
        made = ServerPlace(request.getfixturevalue(request.param))
    yield made
    made.close()


class Start(Protocol):
    """Makes a tier that has listed its store; `store` for another client than the place's own."""

    def __call__(self, store: ObjectStore | None = None, **settings: Any) -> TierStage: ...


@pytest.fixture
def start(place: Place) -> Iterator[Start]:
    """Tiers with short times, except for the time after which a call counts as hanging."""
    stages: list[TierStage] = []
    gates: list[Gate] = []

    def begin(store: ObjectStore | None = None, **settings: Any) -> TierStage:
        names = ("namespace", "random", "broker", "clock")
        more = {name: settings.pop(name) for name in names if name in settings}
        small = small_settings(**{"shared": place.shared, **settings})
        stages.append(TierStage(store or place.open(), settings=small, **more))
        if isinstance(store, Gate):
            gates.append(store)
        return stages[-1].ready()

    yield begin
    for gate in gates:
        gate.let_through()  # or closing waits for what is held
    for stage in stages:
        stage.close()


@pytest_asyncio.fixture
async def site(
    tmp_path: Path, model: SimulatedModel, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Site]:
    async with site_at(tmp_path, tmp_path_factory.mktemp("e"), model) as made:
        yield made
