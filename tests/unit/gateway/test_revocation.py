"""The Revoker against real engines of the simulator and a real registry: its edges."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from scopekv.core.chains import Link
from scopekv.core.receipts import name_pair
from scopekv.core.scopes import ScopeId
from scopekv.errors import Unavailable
from scopekv.gateway import purge_calls
from scopekv.gateway.administration import LOCAL_OPERATOR
from scopekv.gateway.revocation import Revoker
from scopekv.ports import Receipt
from scopekv.simulate.model import SimulatedModel
from scopekv.simulate.stage import Stage

pytestmark = pytest.mark.asyncio(loop_scope="module")
PAIR = "00" * 16 + ":3"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(
    tmp_path_factory: pytest.TempPathFactory, model: SimulatedModel
) -> AsyncIterator[Stage]:
    async with Stage(tmp_path_factory.mktemp("stage"), model) as made:
        made.deployment.account("acme", "alice")
        yield made


def create(stage: Stage, *names: str) -> str:
    """A receipt that nothing told the gateway about: no epoch moved."""
    with stage.deployment.world.registry.write() as tx:
        return tx.receipts.create("test", "- document:/x", names or (PAIR,)).uid


def stored(stage: Stage, uid: str) -> Receipt:
    with stage.deployment.world.registry.read() as view:
        found = view.receipts.get(uid)
    assert found
    return found


def revoker(stage: Stage) -> Revoker:
    return stage.deployment.gateway.revoker


async def test_waiting_takes_the_receipt_up_at_once(stage: Stage) -> None:
    uid = create(stage)
    await revoker(stage).settled(uid, 60)
    found = stored(stage, uid)
    assert found.state == "done"
    assert found.finished_at is not None
    assert stage.engine.seen.purges[-1] == [["00" * 16, 3]]


async def test_an_unknown_or_finished_receipt_is_not_waited_for(stage: Stage) -> None:
    await revoker(stage).settled("rcp_none", 60)


async def test_many_pairs_go_in_several_calls(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(purge_calls, "LINKS_PER_CALL", 2)
    names = [f"{number:032x}:0" for number in range(5)]
    before = len(stage.engine.seen.purges)
    uid = create(stage, *names)
    await revoker(stage).settled(uid, 60)
    calls = stage.engine.seen.purges[before:]
    assert [len(pairs) for pairs in calls] == [2, 2, 1]
    assert sorted(f"{scope}:{epoch}" for pairs in calls for scope, epoch in pairs) == names
    assert stored(stage, uid).state == "done"


async def test_no_pairs_are_still_asked_about(stage: Stage) -> None:
    """An engine without the plugin would be found out; nothing is done unasked."""
    with stage.deployment.world.registry.write() as tx:
        uid = tx.receipts.create("test", "- document:/x", ()).uid
    await revoker(stage).settled(uid, 60)
    assert stage.engine.seen.purges[-1] == []
    assert [line.instance for line in stored(stage, uid).lines] == ["engine-0"]


async def test_a_receipt_closed_elsewhere_is_let_go(stage: Stage) -> None:
    stage.engine.behaviour.purges_busy = 10**6
    try:
        uid = create(stage)
        await revoker(stage).settled(uid, 0.5)
        assert stored(stage, uid).state == "pending"
        receipts = stage.deployment.administration.receipts
        await asyncio.to_thread(receipts.close, LOCAL_OPERATOR, uid, "tested")
        stage.engine.behaviour.purges_busy = 0
        await revoker(stage).settled(uid, 60)
        assert {line.state for line in stored(stage, uid).lines} == {"closed"}
    finally:
        stage.engine.behaviour.purges_busy = 0


async def test_a_receipt_that_names_no_scope_is_never_success(stage: Stage) -> None:
    bad, good = create(stage, "nonsense"), create(stage)
    await revoker(stage).settled(good, 60)
    assert stored(stage, good).state == "done"
    assert stored(stage, bad).state == "pending"
    receipts = stage.deployment.administration.receipts
    await asyncio.to_thread(receipts.close, LOCAL_OPERATOR, bad, "tested")


async def test_a_slow_instance_holds_up_one_receipt_not_all(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever comes while it is being found out gets the reason, and stays open."""
    monkeypatch.setattr(purge_calls, "AWAY_SECONDS", 0.1)
    monkeypatch.setattr(revoker(stage).calls, "seconds", 0.1)
    stage.engine.behaviour.paused = True
    uids = [create(stage) for _ in range(5)]
    waiting = [asyncio.create_task(revoker(stage).settled(uid, 60)) for uid in uids]
    try:
        async with asyncio.timeout(60):
            while {stored(stage, uid).state for uid in uids} != {"incomplete"}:
                await asyncio.sleep(0.02)
        reasons = {line.reason for uid in uids for line in stored(stage, uid).lines}
        assert reasons == {"timed_out"}
    finally:
        stage.engine.behaviour.paused = False
        monkeypatch.undo()
    await asyncio.gather(*waiting)
    assert {stored(stage, uid).state for uid in uids} == {"done"}


async def test_an_instance_that_takes_no_purge_is_not_used_yet(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = stage.deployment.gateway.fleet.instances[0]
    monkeypatch.setattr(revoker(stage).calls, "seconds", 0.1)
    stage.engine.behaviour.paused = True
    uid = create(stage)
    await revoker(stage).settled(uid, 0.5)
    try:
        with pytest.raises(Unavailable):
            await revoker(stage).catch_up(instance)
    finally:
        stage.engine.behaviour.paused = False
        monkeypatch.undo()
    await revoker(stage).catch_up(instance)
    await revoker(stage).settled(uid, 60)
    assert stored(stage, uid).state == "done"


async def test_trouble_of_the_registry_is_not_success(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    uid = create(stage)

    def broken() -> Any:
        raise Unavailable("out of reach")

    with monkeypatch.context() as patch:
        patch.setattr(revoker(stage), "_pending", broken)
        await revoker(stage).settled(uid, 5)
    assert stored(stage, uid).state == "pending"
    await revoker(stage).settled(uid, 60)
    assert stored(stage, uid).state == "done"


async def test_retention_asks_engines_and_destroys_idle_keys(stage: Stage) -> None:
    gateway = stage.deployment.gateway
    before = stage.engine.seen.expires
    await gateway.expirer.expire()
    assert stage.engine.seen.expires == before + 1
    await gateway.expirer.expire_keys()
    await stage.engine.stop()
    await gateway.expirer.expire()  # trouble of one engine is no error
    await stage.engine.start()
    await stage.look()


async def test_a_pair_is_written_as_purges_take_it() -> None:
    assert name_pair(Link(ScopeId(bytes(16)), 3)) == PAIR
