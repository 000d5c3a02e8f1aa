"""Noting scopes: once per scope, together where many wait, refused while the registry is away."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scopekv.adapters.registry import SqlRegistry, open_registry
from scopekv.adapters.root_key import FileKeyWrapper
from scopekv.core.scopes import Scope, ScopeKind
from scopekv.core.segments import Segment
from scopekv.errors import Unavailable
from scopekv.gateway import scope_notes
from scopekv.gateway.scope_notes import ScopeNotes
from scopekv.store import scope_keys
from scopekv.store.scope_keys import Retention

SECRET = b"s" * 32
ORG = Segment(0, 32, Scope(ScopeKind.ORG, ("org_1",)))


class Gated:
    """A registry whose writes wait until they may go; counts them."""

    def __init__(self, inner: SqlRegistry) -> None:
        self._inner = inner
        self.go = threading.Event()
        self.go.set()
        self.writes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def write(self) -> Any:
        self.writes += 1
        self.go.wait(10)
        return self._inner.write()


class House:
    def __init__(self, folder: Path) -> None:
        self.file = folder / "registry.db"
        self.inner = open_registry(f"sqlite:///{self.file}")
        self.registry: Any = Gated(self.inner)
        self.passed, self.wall = 1000.0, 1_800_000_000.0
        self.notes = ScopeNotes(
            self.registry,
            FileKeyWrapper(folder / "wrap.key"),
            SECRET,
            Retention(),
            clock=lambda: self.wall + self.passed,
            monotonic=lambda: self.passed,
        )

    def count(self) -> int:
        with self.inner.read() as view:
            return sum(view.scope_keys.counts().values())


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    made = House(tmp_path)
    yield made
    made.inner.close()


def session(name: str) -> Segment:
    return Segment(32, None, Scope(ScopeKind.SESSION, ("org_1", "usr_1", "", name)))


async def test_a_noted_scope_is_known_for_a_quarter_of_its_retention(house: House) -> None:
    segments = (ORG, session("a"))
    assert not house.notes.known(segments, (0, 0))
    assert await house.notes.note(segments, (0, 0))
    assert house.notes.known(segments, (0, 0))
    assert not house.notes.known(segments, (0, 1)), "another epoch is another key"
    assert house.registry.writes == 1
    house.passed += 3600 + 1
    assert not house.notes.known(segments, (0, 0))
    assert house.notes.known(segments[:1], (0,))
    assert await house.notes.note(segments, (0, 0))
    assert (house.registry.writes, house.count()) == (2, 2)


async def test_wall_time_that_passed_alone_counts(house: House) -> None:
    """A machine that slept: the keys are destroyed by wall time, so nothing is known any more."""
    segments = (session("a"),)
    for asleep in (29.0, 5 * 3600.0):
        assert await house.notes.note(segments, (0,))
        house.wall += asleep
        assert house.notes.known(segments, (0,)) is (asleep < 30)
    scope_keys.expire(house.inner, Retention(), house.wall + house.passed)
    assert house.count() == 0
    assert await house.notes.note(segments, (0,))
    assert house.count() == 1, "a revocation finds the scope again"


async def test_a_clock_put_back_and_forth_is_wall_time_too(house: House) -> None:
    house.notes.known((), ())
    house.wall -= 5 * 3600
    assert await house.notes.note((session("a"),), (0,))
    assert house.notes.known((session("a"),), (0,))
    house.wall += 5 * 3600
    assert not house.notes.known((session("a"),), (0,))


async def test_many_that_wait_are_written_together(house: House) -> None:
    house.registry.go.clear()
    first = asyncio.create_task(house.notes.note((session("first"),), (0,)))
    await asyncio.to_thread(lambda: None)
    others = [
        asyncio.create_task(house.notes.note((ORG, session(f"s{n % 10}")), (0, 0)))
        for n in range(50)
    ]
    await asyncio.sleep(0.05)
    house.registry.go.set()
    assert all(await asyncio.gather(first, *others))
    assert house.registry.writes == 2
    assert house.count() == 12


async def test_a_client_that_leaves_takes_nobody_along(house: House) -> None:
    house.registry.go.clear()
    leaving = asyncio.create_task(house.notes.note((session("a"),), (0,)))
    staying = asyncio.create_task(house.notes.note((session("a"),), (0,)))
    await asyncio.sleep(0.05)
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    house.registry.go.set()
    assert await staying
    await house.notes.close()


async def test_an_epoch_that_is_over_is_said_and_not_remembered(house: House) -> None:
    house.inner.bump_epoch(session("a").scope)
    assert not await house.notes.note((ORG, session("a")), (0, 0))
    assert not house.notes.known((session("a"),), (0,))
    assert await house.notes.note((ORG, session("a")), (0, 1))


async def test_without_the_registry_nothing_is_granted(house: House, tmp_path: Path) -> None:
    os.rename(house.file, tmp_path / "aside")
    with pytest.raises(Unavailable):
        await house.notes.note((session("a"),), (0,))
    assert not house.notes.known((session("a"),), (0,))
    os.rename(tmp_path / "aside", house.file)
    assert await house.notes.note((session("a"),), (0,))


async def test_without_the_root_key_the_request_goes_on_and_it_is_asked_again(
    house: House, tmp_path: Path
) -> None:
    os.rename(tmp_path / "wrap.key", tmp_path / "aside")
    assert await house.notes.note((session("a"),), (0,))
    assert house.notes.known((session("a"),), (0,))
    assert house.count() == 0
    os.rename(tmp_path / "aside", tmp_path / "wrap.key")
    house.passed += 6
    assert not house.notes.known((session("a"),), (0,))
    assert await house.notes.note((session("a"),), (0,))
    assert house.count() == 1


async def test_what_is_known_is_bounded(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scope_notes, "KNOWN_MAX", 5)
    for number in range(12):
        assert await house.notes.note((session(str(number)),), (0,))
        assert house.notes.known((session(str(number)),), (0,))
        assert len(house.notes._known) <= 5
