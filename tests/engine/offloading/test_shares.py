"""Whose share of host memory a chunk fills, whatever happened before it came."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from scopekv.core.leases import NOBODY
from tests.engine.offloading.conftest import Build
from tests.engine.offloading.parts import account

if TYPE_CHECKING:
    from tests.engine.offloading.world import World

pytestmark = pytest.mark.engine


@pytest.fixture
def small(make: Build) -> World:
    """Host memory of 8 chunks; users a and b of different organisations."""
    made = make(chunks=8)
    made.lease("a")
    made.lease("b")
    return made


def used(world: World) -> tuple[int, int, int]:
    """Chunks of a, of b, and of nobody."""
    each = [world.policy._policy.used_bytes(one) for one in (account("a"), account("b"), NOBODY)]
    return each[0], each[1], each[2]


def test_after_a_failed_allocation_chunks_count_to_who_stores_them(small: World) -> None:
    first = small.ask("a", 8)
    small.copy_out(first)
    small.settle()
    small.host.prepare_read(first.keys, first.context)  # all in use
    late = small.ask("b", 2)
    assert small.manager.prepare_store(late.keys, late.context) is None
    small.host.complete_read(first.keys, first.context)
    assert small.copy_out(small.ask("a", 1, first=5000)) == 1
    assert small.copy_out(late) == 2
    assert used(small) == (6, 2, 0)
    small.settle()


def test_after_a_failed_promotion_chunks_count_to_who_stores_them(small: World) -> None:
    small.stored("a", 3)
    small.known_speeds()
    small.stores[0].conduct.flip_reads = True
    asked = small.ask("a", 3)
    small.look(asked)
    assert used(small) == (3, 0, 0)
    assert small.answer(asked) == 0
    assert used(small) == (0, 0, 0)
    small.copy_out(small.ask("b", 2))
    assert used(small) == (0, 2, 0)
    small.settle()


def test_promoted_chunks_count_to_who_asked_for_them(small: World) -> None:
    small.stored("b", 3)
    small.known_speeds()
    small.copy_out(small.ask("a", 2))
    small.settle()
    assert small.answer(small.ask("b", 3)) == 3
    assert used(small) == (2, 3, 0)


def test_room_is_made_in_the_name_of_the_request_that_stores(
    small: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    askers: list[bytes] = []
    victims = small.policy._policy.victims

    def noted(size: int, asking: bytes, protected: Any = ()) -> Any:
        askers.append(asking)
        return victims(size, asking, protected)

    monkeypatch.setattr(small.policy._policy, "victims", noted)
    small.copy_out(small.ask("a", 8))
    small.settle()
    small.copy_out(small.ask("b", 2))
    small.settle()
    small.copy_out(small.ask("a", 1, first=5000))
    assert askers == [account("b"), account("a")]
    assert used(small) == (6, 2, 0)
    small.settle()


def test_an_evicted_chunk_leaves_its_account(small: World) -> None:
    small.copy_out(small.ask("a", 8))
    small.settle()
    small.copy_out(small.ask("b", 4))
    small.settle()
    assert used(small) == (4, 4, 0)
    assert len(small.policy.held()) == len(small.policy._policy) == 8


def test_nobody_is_no_real_account(small: World) -> None:
    """A deployment's own documents fill the account of 16 zero bytes."""
    small.lease("d", "\0")
    assert account("\0") == bytes(16) != NOBODY
    small.copy_out(small.ask("d", 2))
    small.copy_out(small.ask("x", 3))  # no lease: not known whose
    assert used(small) == (0, 0, 3)
    assert small.policy._policy.used_bytes(bytes(16)) == 2
    small.settle()
