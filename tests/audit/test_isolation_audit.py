"""The isolation audit on simulated engines: a whole stack that holds, and what must not pass."""

from __future__ import annotations

import asyncio

import pytest

from scopekv.audit.isolation import IsolationSettings, IsolationTarget, Place, audit_isolation
from scopekv.audit.results import AuditResult, Verdict
from scopekv.core import blocks
from scopekv.core.blocks import Fingerprint
from scopekv.core.scopes import ScopeId
from scopekv.simulate.plugin import SimulatedPlugin
from scopekv.simulate.tiers import SimulatedTiers
from tests.audit.conftest import Open

QUICK = IsolationSettings(seed=3, quick=True)


async def audit(target: IsolationTarget, settings: IsolationSettings = QUICK) -> AuditResult:
    seen: list[tuple[int, int]] = []
    result = await audit_isolation(target, settings, lambda _, *at: seen.append(at))
    assert seen == sorted(seen)
    return result


def not_held(result: AuditResult) -> list[tuple[str, str, str]]:
    """What a failing test shows."""
    return [
        (check.name, check.verdict.value, check.summary)
        for check in result.checks
        if check.verdict is not Verdict.HELD
    ]


@pytest.mark.slow
async def test_a_whole_stack_holds_in_every_tier(
    audited: Open, valkey_url: str, s3_url: str
) -> None:
    """Every forbidden cell 0, every allowed cell a hit: engine, host, directory, Valkey, S3."""
    urls = ("directory", valkey_url, s3_url)
    async with audited(urls=urls, adapters=("adapter-a",)) as stage:
        result = await audit(stage.target, IsolationSettings(seed=5))
    assert not_held(result) == []
    assert result.exit_code == 0
    figures = result.figures
    assert figures["forbidden_hits"] == figures["allowed_misses"] == 0
    assert figures["forbidden_unproved"] == 0
    assert int(str(figures["cells_forbidden"])) > 700
    assert int(str(figures["cells_allowed"])) > 300
    assert result.settings["tiers"] == ["engine", "host", "directory", "valkey", "s3"]
    assert len(str(result.settings["endpoints"]).split(",")) == 4
    names = {check.name for check in result.checks}
    assert {f"isolation.{tier}.user" for tier in Place if tier is not Place.ANY} <= names
    assert {"isolation.restart.engine-0", "isolation.adapters.adapter-a"} <= names


@pytest.mark.slow
async def test_two_instances_hold_and_each_miss_was_where_the_block_lay(
    audited: Open, valkey_url: str
) -> None:
    async with audited(urls=("directory", valkey_url), instances=2) as stage:
        result = await audit(stage.target)
    assert not_held(result) == []
    assert result.figures["forbidden_unproved"] == 0


@pytest.mark.slow
async def test_each_of_two_engines_is_restarted_in_turn(audited: Open) -> None:
    async with audited(instances=2) as stage:
        result = await audit(stage.target, IsolationSettings(seed=6))
    assert not_held(result) == []
    names = {check.name for check in result.checks}
    assert {"isolation.restart.engine-0", "isolation.restart.engine-1"} <= names


@pytest.mark.slow
async def test_cut_short_it_says_what_it_has_seen(audited: Open) -> None:
    async with audited() as stage:
        running: list[asyncio.Task[AuditResult]] = []

        def step(_what: str, done: int, _total: int) -> None:
            if done == 3:
                running[0].cancel()

        running.append(
            asyncio.create_task(audit_isolation(stage.target, IsolationSettings(seed=4), step))
        )
        result = await running[0]
    assert (result.complete, result.verdict, result.exit_code) == (False, Verdict.BLIND, 2)
    assert result.checks[0].name == "isolation.control"
    assert result.figures["forbidden_hits"] == 0
    assert int(str(result.figures["cells_forbidden"])) > 0
    assert "what had not been tried yet" in {one.what for one in result.not_tested}


@pytest.mark.slow
async def test_engine_memory_alone_holds(audited: Open) -> None:
    async with audited() as stage:
        result = await audit(stage.target)
    assert not_held(result) == []
    told = {one.what for one in result.not_tested}
    assert {"the host tier alone", "the s3 tier alone", "adapters"} <= told


@pytest.mark.slow
async def test_a_scope_left_out_of_the_tag_is_broken(
    audited: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leak of `tests/cases/planted/leak.py`, in this process."""
    whole = blocks.block_tag

    def scopeless(namespace: Fingerprint, scopes: list[tuple[ScopeId, int]], a: bytes = b"") -> str:
        del scopes
        return whole(namespace, [], a)

    monkeypatch.setattr(blocks, "block_tag", scopeless)
    monkeypatch.setattr(SimulatedPlugin, "purge", lambda *_: 0)
    async with audited() as stage:
        result = await audit(stage.target)
    assert result.verdict is Verdict.BROKEN
    assert result.exit_code == 1
    assert int(str(result.figures["forbidden_hits"])) > 50
    broken = {check.name for check in result.checks if check.verdict is Verdict.BROKEN}
    assert {"isolation.engine.user", "isolation.engine.session"} <= broken
    assert {"isolation.changes.user_revoked", "isolation.fields.cache_salt"} <= broken
    assert {"isolation.tickets.for_another_scope"} <= broken


@pytest.mark.slow
async def test_a_tier_that_lost_its_blocks_is_blind_not_held(
    audited: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What one tier never serves was not tested there, whatever the other tiers do."""
    monkeypatch.setattr(SimulatedTiers, "_from_host", lambda *_: None)
    async with audited(urls=()) as stage:
        result = await audit(stage.target)
    verdicts = {check.name: check.verdict for check in result.checks}
    assert verdicts["isolation.engine.user"] is Verdict.HELD
    assert verdicts["isolation.host.user"] is Verdict.BLIND
    assert result.verdict is Verdict.BLIND


async def test_with_caching_off_it_is_blind_and_says_so(audited: Open) -> None:
    """Case I3. A cache of one block keeps no first block."""
    async with audited(blocks_max=1) as stage:
        result = await audit(stage.target)
    assert result.verdict is Verdict.BLIND
    assert result.exit_code == 2
    assert "caching is off" in result.checks[0].summary
    assert result.figures["cells_forbidden"] == 0


@pytest.mark.slow
async def test_without_the_plugin_nothing_leaks_and_sharing_is_not_claimed(audited: Open) -> None:
    async with audited(plugin=False) as stage:
        result = await audit(stage.target)
    verdicts = {check.name: check.verdict for check in result.checks}
    assert result.figures["forbidden_hits"] == 0
    assert verdicts["isolation.any.user"] is Verdict.HELD
    assert verdicts["isolation.any.org_document"] is Verdict.BLIND
    assert result.verdict is Verdict.BLIND
