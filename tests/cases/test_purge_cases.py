"""Case I9: a purge does what it says, in every tier it names, and what is purged is not served."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from scopekv.core.fences import Fences
from scopekv.gateway.administration import LOCAL_OPERATOR
from scopekv.gateway.administration.views import ReceiptView
from scopekv.simulate.model import SimulatedModel
from scopekv.simulate.stage import Stage, text_of, until

pytestmark = pytest.mark.slow

BLOCK = 32


async def settle(stage: Stage, uid: str) -> ReceiptView:
    await stage.deployment.gateway.revoker.settled(uid, 60)
    return stage.deployment.administration.receipts.show(LOCAL_OPERATOR, uid)


async def cached(stage: Stage, key: str, text: str) -> int:
    return (await stage.client.chat(key, text, "question")).cached


async def test_i9_a_purge_removes_what_it_says_and_no_more(
    tmp_path: Path, model: SimulatedModel
) -> None:
    stage = Stage(tmp_path, model)
    alice = stage.deployment.account("acme", "alice")
    bob = stage.deployment.account("globex", "bob")
    async with stage:
        engine, text = stage.engine, text_of("secret", 60)
        assert engine.plugin is not None
        for key in (alice, bob):
            await cached(stage, key, text)
            assert await cached(stage, key, text) > 3 * BLOCK, "the positive control"
        held = len(engine.cache)
        revocations = stage.deployment.administration.revocations
        made = revocations.org(LOCAL_OPERATOR, "acme").receipt
        receipt = await settle(stage, made.id)
        assert receipt.state == "done"
        removed = sum(line.removed for line in receipt.lines)
        assert removed == held - len(engine.cache) > 3, "the count is the engine's, not a guess"
        assert await cached(stage, alice, text) == 0
        assert await cached(stage, bob, text) > 3 * BLOCK, "another's blocks stay"


@pytest.mark.parametrize("place", ["public", "org:acme"])
async def test_i9_a_revoked_document_leaves_pinned_memory_too(
    tmp_path: Path, model: SimulatedModel, place: str
) -> None:
    stage = Stage(tmp_path, model)
    alice = stage.deployment.account("acme", "alice")
    text = text_of("document", 60)
    uid = stage.deployment.publish("document", place, text)
    async with stage:
        await cached(stage, alice, text)
        assert await cached(stage, alice, text) > 3 * BLOCK
        stage.deployment.administration.documents.withdraw(LOCAL_OPERATOR, uid)
        receipts = stage.deployment.administration.receipts
        page = receipts.list(LOCAL_OPERATOR, after="", limit=1)
        receipt = await settle(stage, getattr(page.data[0], "id", ""))
        assert receipt.state == "done"
        assert sum(line.removed for line in receipt.lines) > 3
        assert await cached(stage, alice, text) == 0


async def test_i9_one_tier_that_cannot_is_named_and_the_whole_is_no_success(
    tmp_path: Path, model: SimulatedModel
) -> None:
    stage = Stage(tmp_path, model)
    stage.deployment.account("acme", "alice")
    async with stage:
        stage.engine.behaviour.purge_error = "read-only"
        revocations = stage.deployment.administration.revocations
        made = revocations.user(LOCAL_OPERATOR, "acme", "alice").receipt
        show = stage.deployment.administration.receipts.show
        await until(lambda: show(LOCAL_OPERATOR, made.id).state == "incomplete")
        receipt = show(LOCAL_OPERATOR, made.id)
        said = {line.tier: (line.state, line.reason) for line in receipt.lines}
        assert said == {"engine": ("done", ""), "directory": ("incomplete", "tier_error")}


async def test_i14_a_ticket_minted_before_is_worth_nothing_after(
    tmp_path: Path, model: SimulatedModel
) -> None:
    """The request is on its way to the engine while its scope is revoked."""
    stage = Stage(tmp_path, model)
    alice = stage.deployment.account("acme", "alice")
    text = text_of("late", 60)
    async with stage:
        for _ in range(2):
            assert (await stage.client.chat(alice, text)).status == 200
        stage.engine.behaviour.head_seconds = 3.0
        late = asyncio.create_task(stage.client.chat(alice, text))
        while not stage.engine.seen.running:
            await asyncio.sleep(0.005)
        revocations = stage.deployment.administration.revocations
        made = revocations.user(LOCAL_OPERATOR, "acme", "alice").receipt
        assert (await settle(stage, made.id)).state == "done"
        assert not late.done(), "the ticket has not reached the judge yet"
        assert (await late).cached == 0
        assert stage.engine.plugin is not None
        assert stage.engine.plugin.counts["revoked"] == 1
        stage.engine.behaviour.head_seconds = 0.0
        assert (await stage.client.chat(alice, text)).cached == 0, "it left nothing behind either"
        assert (await stage.client.chat(alice, text)).cached > 3 * BLOCK


@pytest.mark.parametrize("fenced", [True, False])
async def test_i14_a_missing_fence_would_be_seen(
    tmp_path: Path, model: SimulatedModel, monkeypatch: pytest.MonkeyPatch, fenced: bool
) -> None:
    """Planted: without fences, one late ticket fills the old epoch's blocks and the next reads."""
    if not fenced:
        monkeypatch.setattr(Fences, "raise_above", lambda *_: None)
    stage = Stage(tmp_path, model)
    alice = stage.deployment.account("acme", "alice")
    text = text_of("planted", 60)
    async with stage:
        stage.engine.behaviour.head_seconds = 3.0
        late = [asyncio.create_task(stage.client.chat(alice, text)) for _ in range(2)]
        while stage.engine.seen.running < 2:
            await asyncio.sleep(0.005)
        revocations = stage.deployment.administration.revocations
        made = revocations.user(LOCAL_OPERATOR, "acme", "alice").receipt
        assert (await settle(stage, made.id)).state == "done"
        cached = max(answer.cached for answer in await asyncio.gather(*late))
        assert (cached == 0) is fenced
