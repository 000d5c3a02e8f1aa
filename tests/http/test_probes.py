"""The probe detector in a running gateway, with its settings from a file."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from scopekv.errors import ConfigError
from scopekv.gateway.administration import LOCAL_OPERATOR
from scopekv.gateway.settings import GatewaySettings, ProbeAction
from scopekv.gateway.settings_file import read_settings
from scopekv.simulate.model import SimulatedModel
from scopekv.simulate.stage import Stage, text_of

pytestmark = pytest.mark.asyncio(loop_scope="module")
POINTS = 4
SECRETS = [text_of(f"secret {number}", 120) for number in range(POINTS)]


def settings_of(folder: Path, probes: str) -> GatewaySettings:
    path = folder / "scopekv.toml"
    path.write_text(f"""
port = 0
stop_seconds_max = 0.5
[[instances]]
name = "a"
url = "http://127.0.0.1:1"
[probes]
{probes}
""")
    return read_settings(path)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def narrowing(
    tmp_path_factory: pytest.TempPathFactory, model: SimulatedModel
) -> AsyncIterator[Stage]:
    folder = tmp_path_factory.mktemp("narrowing")
    settings = settings_of(folder, f'action = "narrow"\npoints_max = {POINTS}')
    async with Stage(folder, model, settings=settings) as stage:
        yield stage


async def probe(stage: Stage, victim: str, prober: str, secrets: list[str]) -> None:
    """Each secret once by its owner, then most of it by somebody else."""
    for secret in secrets:
        assert (await stage.client.chat(victim, secret)).status == 200
        guess = secret[: len(secret) * 3 // 4] + text_of("guess", 40)
        assert (await stage.client.chat(prober, guess)).cached == 0


async def alarms(stage: Stage) -> list[tuple[str, str, str]]:
    await stage.deployment.gateway.probes.stop()
    audit = stage.deployment.administration.audit
    entries: Any = audit.list(LOCAL_OPERATOR, after=0, limit=1000).data
    return [
        (entry.actor, entry.outcome, entry.reason) for entry in entries if entry.action == "probe"
    ]


async def test_a_prober_is_noted_and_shares_no_more_for_a_while(
    narrowing: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, account = narrowing, narrowing.deployment.account
    victim, prober, other = (account(*who) for who in (("acme", "v"), ("evil", "p"), ("evil", "q")))
    document, system = text_of("handbook", 60), text_of("instructions", 60)
    stage.deployment.publish("handbook", "public", document)
    await stage.deployment.gateway.warmer.settle()
    await stage.client.chat(other, system, "a question")
    before = [
        (await stage.client.chat(prober, *text)).cached for text in ((document,), (system, "b"))
    ]
    assert min(before) > 0
    await probe(stage, victim, prober, SECRETS[:-1])
    assert await alarms(stage) == []
    await probe(stage, victim, prober, SECRETS[-1:])
    assert await alarms(stage) == [("evil/p", "narrowed", "many_prefixes")]
    fresh = text_of("more instructions", 60)
    await stage.client.chat(other, fresh, "a question")
    for texts in ((document + " Really?",), (system, "c"), (fresh, "d")):
        assert (await stage.client.chat(prober, *texts)).cached == 0
        assert (await stage.client.chat(prober, *texts)).cached > 0  # with itself it shares on
    assert (await stage.client.chat(other, fresh, "e")).cached > 0
    assert (await stage.client.chat(other, document)).cached > 0
    await stage.client.chat(other, text_of("new instructions", 60), "g")
    later = time.monotonic() + stage.deployment.gateway._settings.probes.narrow_seconds
    monkeypatch.setattr(stage.deployment.gateway.probes, "_monotonic", lambda: later)
    assert (await stage.client.chat(prober, text_of("new instructions", 60), "h")).cached > 0


async def test_end_users_of_a_service_account_are_told_apart(narrowing: Stage) -> None:
    stage, account = narrowing, narrowing.deployment.account
    victim, desk = account("acme", "w"), account("shop", "desk", service=True)
    for number, secret in enumerate(text_of(f"other secret {n}", 120) for n in range(2 * POINTS)):
        await stage.client.chat(victim, secret)
        guess = secret[: len(secret) * 3 // 4] + text_of("guess", 40)
        await stage.client.chat(desk, guess, user=f"user {number % 4}")
    assert not [one for one in await alarms(stage) if one[0] == "shop/desk"]


async def test_who_names_end_users_without_being_a_service_gains_nothing(narrowing: Stage) -> None:
    stage, account = narrowing, narrowing.deployment.account
    victim, prober = account("acme", "x"), account("evil", "r")
    for number, secret in enumerate(text_of(f"third secret {n}", 120) for n in range(POINTS)):
        await stage.client.chat(victim, secret)
        guess = secret[: len(secret) * 3 // 4] + text_of("guess", 40)
        await stage.client.chat(prober, guess, user=f"user {number}")
    assert ("evil/r", "narrowed", "many_prefixes") in await alarms(stage)


@pytest.mark.parametrize(
    ("probes", "expected"),
    [("points_max = 2", [("evil/p", "noticed", "many_prefixes")]), ('action = "off"', [])],
)
async def test_an_alarm_alone_changes_nothing(
    tmp_path: Path, model: SimulatedModel, probes: str, expected: list[tuple[str, str, str]]
) -> None:
    async with Stage(tmp_path, model, settings=settings_of(tmp_path, probes)) as stage:
        account = stage.deployment.account
        victim, prober, other = account("acme", "v"), account("evil", "p"), account("evil", "q")
        await probe(stage, victim, prober, SECRETS)
        assert await alarms(stage) == expected
        system = text_of("instructions", 60)
        await stage.client.chat(other, system, "a question")
        assert (await stage.client.chat(prober, system, "another")).cached > 0


async def test_the_file_is_checked(tmp_path: Path) -> None:
    assert settings_of(tmp_path, "").probes.action is ProbeAction.ALARM
    for wrong in ('action = "ban"', "points_max = 0", "narrow_seconds = 0", "siblings = 3"):
        with pytest.raises(ConfigError):
            settings_of(tmp_path, wrong)
