"""Real servers from wheels, and one registry or object store per test and kind."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from scopekv.adapters.objects import open_store
from scopekv.adapters.registry import SqlRegistry, open_registry
from scopekv.core.scopes import Audience
from scopekv.ports import Account, DocumentRecord, Group, ObjectStore, Org
from tests.contracts.object_servers import S3Server, Servers, ValkeyServers
from tests.contracts.postgres_server import empty_database, postgres_running

MakeUrl = Callable[[], str]
_NUMBERS = itertools.count(1)
ServersT = TypeVar("ServersT", ValkeyServers, S3Server)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Any]:
    with postgres_running() as server:
        yield server


@pytest.fixture
def make_postgres_url(postgres: Any) -> MakeUrl:
    """Makes an empty database and returns its URL."""
    return lambda: empty_database(postgres, f"registry_{next(_NUMBERS)}")


@pytest.fixture(params=["sqlite", "postgresql"])
def make_url(request: pytest.FixtureRequest, tmp_path: Path) -> MakeUrl:
    """Makes an empty database of each kind in turn."""
    if request.param == "postgresql":
        made: MakeUrl = request.getfixturevalue("make_postgres_url")
        return made
    return lambda: f"sqlite:///{tmp_path / f'registry-{next(_NUMBERS)}.db'}"


@pytest.fixture
def url(make_url: MakeUrl) -> str:
    return make_url()


@pytest.fixture
def registry(url: str) -> Iterator[SqlRegistry]:
    opened = open_registry(url)
    yield opened
    opened.close()


class Filler:
    """Short ways to put things into a registry."""

    def __init__(self, registry: SqlRegistry) -> None:
        self._registry = registry

    def org(self, name: str = "acme") -> Org:
        with self._registry.write() as tx:
            return tx.orgs.create(name)

    def account(self, org: Org, name: str = "alice") -> Account:
        with self._registry.write() as tx:
            return tx.accounts.create(org.uid, name, False)

    def group(self, org: Org, name: str = "eng") -> Group:
        with self._registry.write() as tx:
            return tx.groups.create(org.uid, name)

    def document(
        self, org_uid: str, name: str, audience: str, text: str = "text"
    ) -> DocumentRecord:
        with self._registry.write() as tx:
            return tx.documents.publish(org_uid, name, Audience.parse(audience), text)


@pytest.fixture
def fill(registry: SqlRegistry) -> Filler:
    return Filler(registry)


@contextlib.contextmanager
def _running(servers: ServersT) -> Iterator[ServersT]:
    try:
        servers.start()
        yield servers
    finally:
        servers.kill()


@pytest.fixture(scope="session")
def valkey_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyServers]:
    with _running(ValkeyServers(tmp_path_factory.mktemp("valkey"))) as servers:
        yield servers


@pytest.fixture(scope="session")
def valkey_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyServers]:
    with _running(ValkeyServers(tmp_path_factory.mktemp("valkey-cluster"), count=3)) as servers:
        yield servers


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with _running(S3Server(tmp_path_factory.mktemp("s3"))) as server:
        yield server


@pytest.fixture(params=["valkey_server", "valkey_cluster", "s3_server"])
def servers(request: pytest.FixtureRequest) -> Servers:
    """Each kind of object server in turn. Who stops one starts it again."""
    found: Servers = request.getfixturevalue(request.param)
    return found


@pytest.fixture(params=["directory", "valkey_server", "valkey_cluster", "s3_server"])
def object_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty object store of each kind in turn."""
    if request.param == "directory":
        return (tmp_path / "objects").as_uri()
    found: Servers = request.getfixturevalue(request.param)
    return found.url()


@pytest.fixture
def store(object_url: str) -> Iterator[ObjectStore]:
    opened = open_store(object_url)
    yield opened
    opened.close()
