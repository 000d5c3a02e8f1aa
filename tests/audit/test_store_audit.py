"""The store audit on whole deployments: a clean one holds, and each planted wrong is found."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from scopekv.audit.results import AuditResult, Verdict
from scopekv.audit.store import MetricsPage, Secret
from scopekv.errors import Unavailable
from scopekv.simulate.model import SimulatedModel
from tests.audit.planted_store import PLANTS, TAMPER_PLANTS, Plant
from tests.audit.store_places import FAST, TierPlace, check_of, tier_place
from tests.contracts.object_servers import S3Server, ValkeyServers

TAMPER = replace(FAST, tamper=True)


@pytest_asyncio.fixture
async def place(tmp_path: Path, model: SimulatedModel) -> AsyncIterator[TierPlace]:
    async with tier_place(tmp_path, model, [str(tmp_path / "tier")], event_bus=True) as made:
        yield made


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[tuple[ValkeyServers, S3Server]]:
    """A real Valkey and a real S3."""
    valkey, s3 = ValkeyServers(tmp_path), S3Server(tmp_path)
    try:
        valkey.start()
        s3.start()
        yield valkey, s3
    finally:
        valkey.kill()
        s3.kill()


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    """What lies there, with modes."""
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mode)
        for path in folder.rglob("*")
        if path.is_file() and path.name != ".lock"
    }


def not_held(result: AuditResult) -> dict[str, str]:
    """What is broken or blind, and why."""
    odd = (Verdict.BROKEN, Verdict.BLIND)
    return {check.name: check.summary for check in result.checks if check.verdict in odd}


async def test_a_clean_directory_holds_and_says_what_a_thief_learns(
    place: TierPlace, tmp_path: Path
) -> None:
    """One run of everything that only reads: stores, a log, metrics, events."""
    log = tmp_path / "gateway.log"
    log.write_text("INFO scopekv.gateway: listening\n")
    secrets = (
        Secret("the scope secret", place.deployment.world.scope_secret),
        Secret("the instance secret", place.deployment.world.instance_secret.encode()),
    )
    page = MetricsPage(
        f"{place.deployment.url}/metrics", place.deployment.account("hq", "op", roles=["operator"])
    )
    result = await place.audit(
        secrets=secrets,
        logs=(log,),
        metrics=(page,),
        events=(place.engine.events_endpoint,),
    )
    assert {
        check.name: check.summary for check in result.checks if check.verdict is not Verdict.HELD
    } == {}
    assert result.exit_code == 0
    assert result.figures["objects"]
    assert (result.figures["plaintext_hits"], result.figures["names_confirmed"]) == (0, 0)
    learned = check_of(result, "store.learned").evidence[str(tmp_path / "tier")]
    assert isinstance(learned, dict)
    assert learned["scopes"] == 2
    assert any("--tamper" in one.why for one in result.not_tested)


@pytest.mark.slow
@pytest.mark.parametrize(("plant", "name"), PLANTS, ids=lambda one: getattr(one, "__name__", ""))
async def test_a_tier_built_wrong_is_found(
    plant: Plant, name: str, tmp_path: Path, model: SimulatedModel
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        async with tier_place(tmp_path, model, [str(tmp_path / "tier")]) as place:
            result = await place.audit()
    assert check_of(result, name).verdict is Verdict.BROKEN
    assert result.exit_code == 1


@pytest.mark.slow
@pytest.mark.parametrize("plant", TAMPER_PLANTS, ids=lambda one: one.__name__)
async def test_a_tier_that_serves_what_was_changed_is_found(
    plant: Plant, tmp_path: Path, model: SimulatedModel
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        async with tier_place(tmp_path, model, [str(tmp_path / "tier")]) as place:
            result = await place.audit(TAMPER, revoke=place.revoke)
    check = check_of(result, "store.tamper.directory")
    assert check.verdict is Verdict.BROKEN
    assert result.figures["tampers_served"]


@pytest.mark.slow
async def test_tampering_is_refused_counted_and_undone(place: TierPlace, tmp_path: Path) -> None:
    result = await place.audit(TAMPER, revoke=place.revoke)
    assert {
        check.name: check.summary for check in result.checks if check.verdict is Verdict.BROKEN
    } == {}
    for name in ("directory", "counted", "old_epoch"):
        assert check_of(result, f"store.tamper.{name}").verdict is Verdict.HELD
    assert result.figures["tampers"] == 12
    assert result.figures["tampers_served"] == 0
    left = contents(tmp_path / "tier")
    assert not [name for name in left if ".quarantine" in name]
    assert {len(content) for content, _ in left.values()} == {4096 + 48}


@pytest.mark.slow
async def test_every_kind_of_store_holds(
    tmp_path: Path, model: SimulatedModel, servers: tuple[ValkeyServers, S3Server]
) -> None:
    """Real servers; three stores at once, each attacked alone."""
    urls = [str(tmp_path / "tier"), *(server.url() for server in servers)]
    async with tier_place(tmp_path, model, urls) as place:
        result = await place.audit(TAMPER, revoke=place.revoke)
        if "no answer within" in str(not_held(result)):  # a server that stalls proves nothing
            result = await place.audit(TAMPER, revoke=place.revoke)
    assert not_held(result) == {}
    for kind in ("directory", "valkey", "s3"):
        assert check_of(result, f"store.tamper.{kind}").verdict is Verdict.HELD
    assert result.figures["tampers"] == 36
    assert "test-password" not in str(result.plain())
    assert "test-secret" not in str(result.plain())


@pytest.mark.slow
async def test_a_cancelled_audit_leaves_every_byte_as_it_was(
    place: TierPlace, tmp_path: Path
) -> None:
    """Ctrl-C in the middle of tampering."""
    asked: list[int] = []

    async def forget() -> None:
        asked.append(1)
        if len(asked) == 7:
            running.cancel()
        await place.forget()

    running = asyncio.ensure_future(place.audit(TAMPER, forget=forget))
    result = await running
    assert not result.complete
    assert result.verdict is Verdict.BLIND
    assert check_of(result, "store.plaintext").verdict is Verdict.HELD
    for content, mode in contents(tmp_path / "tier").values():
        assert content.startswith(b"SKVO")
        assert len(content) == 4096 + 48
        assert mode & 0o777 == 0o600
    again = await place.audit(FAST)
    assert again.verdict is Verdict.HELD


@pytest.mark.slow
async def test_engines_that_cannot_be_asked_leave_what_was_read_and_blind_the_rest(
    place: TierPlace,
) -> None:
    async def forget() -> None:
        raise Unavailable("this engine cannot be told to forget")

    result = await place.audit(TAMPER, forget=forget)
    assert check_of(result, "store.plaintext").verdict is Verdict.HELD
    assert check_of(result, "store.tamper.whole").verdict is Verdict.BLIND
    assert result.exit_code == 2


async def test_without_a_tier_behind_the_gateway_it_is_blind(
    place: TierPlace, tmp_path: Path
) -> None:
    """Another store than the engines': what is not in it proves nothing (case I3)."""
    empty = tmp_path / "elsewhere"
    empty.mkdir(mode=0o700)
    result = await place.audit(
        replace(FAST, settle_seconds_max=0.2), stores=(f"directory={empty}",)
    )
    assert check_of(result, "store.plaintext").verdict is Verdict.BLIND
    assert check_of(result, "store.scopes").verdict is Verdict.BLIND
    assert result.exit_code == 2


@pytest.mark.slow
async def test_one_command_with_two_keys_reads_a_deployment(
    place: TierPlace, tmp_path: Path
) -> None:
    """As it is typed, with a gateway's own file and keys from the environment."""
    callers = place.target.callers
    assert callers is not None
    config = tmp_path / "scopekv.toml"
    engine = f'[[instances]]\nname = "e"\nurl = "{place.engine.url}"\napi_key = "engine"\n'
    config.write_text(f"port = {place.deployment.gateway.port}\n{engine}")
    words = ["--config", str(config), "--data-dir", str(tmp_path), "--json"]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", "from scopekv.cli.main import main; main()", "audit", "store"),
        *(*words, "--store", f"directory={tmp_path / 'tier'}"),
        env=os.environ
        | {"SCOPEKV_AUDIT_KEY": callers.key, "SCOPEKV_AUDIT_OTHER_KEY": callers.other_key},
        stdout=asyncio.subprocess.PIPE,
    )
    printed, _ = await process.communicate()
    told = json.loads(printed)
    held = {one["name"] for one in told["checks"] if one["verdict"] == "held"}
    assert {"store.plaintext", "store.sealed", "store.names", "store.scopes"} <= held
    assert told["objects"]
    assert callers.key not in printed.decode()


@pytest.mark.slow
@pytest.mark.parametrize("what", ["log", "metric", "event"])
async def test_what_is_told_beside_the_stores_is_found(
    what: str, place: TierPlace, tmp_path: Path
) -> None:
    """A log with a ticket, a label with an organisation, an event with a salt."""
    log = tmp_path / "engine.log"

    async def tickets() -> list[str]:
        found = list(await place.tickets())
        log.write_text(f"DEBUG refused {found[0]}\n" if what == "log" else "INFO\n")
        if what == "event" and place.engine.plugin is not None:
            for deliver in place.engine.plugin.bus.deliver:
                deliver(0, b"\x81\xa4salt\xaaglobex/bob")
            await asyncio.sleep(0.2)
        return found

    if what == "metric":
        place.deployment.gateway.metrics.answered("globex", 200)
    page = MetricsPage(
        f"{place.deployment.url}/metrics", place.deployment.account("hq", "op", roles=["operator"])
    )
    log.touch()
    result = await place.audit(
        tickets=tickets, logs=(log,), metrics=(page,), events=(place.engine.events_endpoint,)
    )
    broken = {check.name for check in result.checks if check.verdict is Verdict.BROKEN}
    assert broken == {f"store.{what}s"}
