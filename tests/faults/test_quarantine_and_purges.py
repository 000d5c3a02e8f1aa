"""Quarantined bytes end with their scope and their time, and a purge walks a store once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from scopekv.adapters.objects import DirectoryStore, open_store
from scopekv.core.chains import Link, folder, tag
from scopekv.ports import ObjectKey, ObjectStore
from scopekv.simulate.object_store import SimulatedObjectStore
from scopekv.simulate.sealed_tier import SimulatedBroker, TierStage, link, small_settings
from scopekv.store.blocks import Purged
from scopekv.store.fence import Fence
from scopekv.store.purges import Purges
from tests.contracts.object_servers import ValkeyServers, until

RETENTION = 1000


class Wall:
    """A wall clock that can be set."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead


def key_in(*links: Link, number: int = 0, retention: int = RETENTION) -> ObjectKey:
    name = folder(links, retention)
    assert name is not None
    return ObjectKey(name, f"{number:040x}")


@pytest.fixture(params=["directory", "simulated"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ObjectStore]:
    directory = request.param == "directory"
    made = DirectoryStore(tmp_path / "objects") if directory else SimulatedObjectStore()
    yield made
    made.close()


def purge(store: ObjectStore, *links: Link) -> Purged:
    purges = Purges(store, Fence(), time.monotonic, lambda _: None)
    tags = frozenset(map(tag, links))
    answers: list[Purged] = []

    def over() -> bool:
        answers.append(purges.ask(tags))
        return answers[-1].busy == 0

    until(over, "the purge is over")
    return answers[-1]


def test_what_is_quarantined_is_listed_under_the_name_and_time_it_had(store: ObjectStore) -> None:
    key = key_in(link("user"))
    store.put(key, [b"corrupt"])
    (before,) = store.objects()
    store.quarantine(key)
    assert list(store.objects()) == []
    (aside,) = store.quarantined()
    assert (aside.key, aside.size_bytes) == (key, 7)
    assert aside.stored_at == pytest.approx(before.stored_at)
    store.put(key, [b"sound"])
    assert store.delete([key]) == 1, "the quarantined one is not counted"
    assert list(store.quarantined()) == []


def test_a_purge_reaches_a_folder_of_quarantined_objects_alone(store: ObjectStore) -> None:
    gone, kept = key_in(link("gone"), link("session")), key_in(link("kept"))
    for key in (gone, kept):
        store.put(key, [b"corrupt"])
        store.quarantine(key)
    assert purge(store, link("session")) == Purged(0, 0)
    assert [stat.key for stat in store.quarantined()] == [kept]


def test_retention_reaches_quarantined_bytes(tmp_path: Path) -> None:
    wall, broker = Wall(), SimulatedBroker(retention_seconds=RETENTION)
    settings = small_settings()
    root = tmp_path / "objects"
    stage = TierStage(DirectoryStore(root), settings=settings, broker=broker, clock=wall).ready()
    block = stage.block(stage.grant(link("user")), "one")
    stage.store(block)
    (path,) = root.glob("r*/*")
    path.write_bytes(bytes(path.stat().st_size))
    assert stage.load(stage.empty(block)).ok == ()
    aside = root / ".quarantine" / f"{path.parent.name}.{path.name}"
    wall.ahead = RETENTION - 10
    stage.tier.expire()
    assert aside.exists()
    wall.ahead = RETENTION + 10
    stage.until(lambda: not aside.exists())
    stage.close()


@pytest.mark.slow
def test_a_purge_of_many_folders_walks_valkey_no_oftener_than_one_of_one(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    servers = ValkeyServers(tmp_path_factory.mktemp("valkey"))
    servers.start()
    try:
        store = open_store(servers.url())

        def scans() -> int:
            stats = servers.ask(servers.ports[0], "INFO commandstats")
            return int(stats.partition("cmdstat_scan:calls=")[2].partition(",")[0] or 0)

        def walks(folders: int) -> int:
            for number in range(folders):
                store.put(key_in(link("gone"), link(f"session {number}")), [b"x"])
            store.put(key_in(link("kept")), [b"x"])
            before = scans()
            assert purge(store, link("gone")) == Purged(folders, 0)
            return scans() - before

        assert walks(60) == walks(1) == 2, "one that deletes, one that finds nothing left"
        assert [stat.key for stat in store.objects()] == [key_in(link("kept"))]
        store.close()
    finally:
        servers.kill()
