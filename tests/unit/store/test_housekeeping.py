"""The janitor where others meddle: lost objects, keys that are over, an end before the start."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from scopekv.simulate.object_store import SimulatedObjectStore
from scopekv.simulate.sealed_tier import BLOCK_BYTES, TierStage, link, small_settings
from scopekv.store.manifest import load

if TYPE_CHECKING:
    from tests.unit.store.conftest import Start

OBJECT_BYTES = BLOCK_BYTES + 48


def test_what_somebody_else_deleted_takes_no_room(
    start: Start, store: SimulatedObjectStore
) -> None:
    stage = start(shared=True)
    stage.store(*[stage.block(stage.grant(link("user")), f"{i}") for i in range(3)])
    store.stored.pop(next(iter(store.stored)))
    stage.until(lambda: stage.tier.counters()["used_bytes"] == 2 * OBJECT_BYTES)


def test_a_tier_that_ends_before_it_listed_its_store_keeps_the_manifest(
    start: Start, store: SimulatedObjectStore, tmp_path: Path
) -> None:
    path = tmp_path / "manifest"
    first = start(manifest=path)
    first.store(first.block(first.grant(link("user")), "0"))
    first.tier.close()
    before = load(path)
    assert len(before) == 1
    slow = SimulatedObjectStore(beside=store)
    slow.hang("objects")
    second = TierStage(slow, settings=small_settings(path, close_seconds=0.1))
    second.close()
    assert not second.tier.ready
    assert load(path) == before


def test_no_key_outlives_its_lease_while_the_store_is_out_of_reach(
    start: Start, store: SimulatedObjectStore
) -> None:
    stage = start()
    store.conduct.fail_reads = store.conduct.fail_writes = True
    lease = stage.broker.lease_of(link("user"))
    stage.keyring.accept([lease], time.monotonic() - lease.lease_seconds)
    stage.until(lambda: not stage.keyring._held)
