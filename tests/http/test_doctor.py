"""Prepared misconfigurations: `scopekv doctor` finds each of them and says what to do."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from click.testing import CliRunner

from scopekv.adapters.ed25519 import TicketSigner, write_public_keys
from scopekv.cli.doctor import doctor
from scopekv.compose import ROOT_KEY, WRAP_KEY
from scopekv.gateway.checkup import Finding, Level, examine, registry_of
from scopekv.simulate.model import SimulatedModel
from scopekv.simulate.stage import ENGINE_KEY, Stage

Spoil = Callable[["Place"], None]


@dataclass(slots=True)
class Place:
    """A deployment of two engines, its folder, and what its scopekv.toml says."""

    stage: Stage
    folder: Path
    settings: dict[str, Any]

    @property
    def config(self) -> Path:
        file = self.folder / "scopekv.toml"
        if not file.exists():
            lines = [f"{name} = {json.dumps(value)}" for name, value in self.settings.items()]
            for number, engine in enumerate(self.stage.engines):
                lines += ["[[instances]]", f'name = "engine-{number}"', f'url = "{engine.url}"']
                lines.append(f'api_key = "{ENGINE_KEY}"')
            file.write_text("\n".join(lines))
        return file


@pytest_asyncio.fixture
async def place(tmp_path: Path, model: SimulatedModel) -> AsyncIterator[Place]:
    async with Stage(tmp_path, model, plugins=(True, True)) as stage:
        yield Place(stage, tmp_path, {"port": 0})


async def diagnosed(place: Place) -> tuple[list[dict[str, Any]], int]:
    """What the command says, and its exit code."""

    def run() -> tuple[list[dict[str, Any]], int]:
        arguments = ["--config", str(place.config), "--data-dir", str(place.folder), "--json"]
        result = CliRunner().invoke(doctor, arguments)
        return json.loads(result.stdout)["findings"], result.exit_code

    return await asyncio.to_thread(run)


def unreadable_toml(place: Place) -> None:
    place.config.write_text("port = = 1")


def unknown_setting(place: Place) -> None:
    place.config.write_text(place.config.read_text() + "\n[routng]\nin_flight_max = 1\n")


def open_to_all(place: Place) -> None:
    (place.folder / ROOT_KEY).chmod(0o644)


def broken_key(place: Place) -> None:
    (place.folder / WRAP_KEY).write_text("not a key")


def no_registry(place: Place) -> None:
    place.settings["registry"] = "sqlite:////dev/null/registry.db"


def wrong_api_key(place: Place) -> None:
    place.config.write_text(place.config.read_text().replace(ENGINE_KEY, "another"))


def wrong_url(place: Place) -> None:
    text = place.config.read_text()
    place.config.write_text(text.replace(place.stage.engine.url, place.stage.deployment.url))


def engine_down(place: Place) -> None:
    text = place.config.read_text()
    place.config.write_text(text.replace(place.stage.engine.url, "http://127.0.0.1:9"))


def no_plugin(place: Place) -> None:
    place.stage.engine.plugin = None


def other_keys(place: Place) -> None:
    file = place.folder / "others.json"
    write_public_keys(file, [TicketSigner(bytes(32)).public_key])
    plugin = place.stage.engine.plugin
    assert plugin is not None
    plugin.keys = type(plugin.keys)(file)


def other_group(place: Place) -> None:
    assert place.stage.engine.plugin is not None
    place.stage.engine.plugin.instance_group = "elsewhere"


def self_check(place: Place) -> None:
    assert place.stage.engine.plugin is not None
    place.stage.engine.plugin.self_check = "vLLM 0.99 is not known"


def other_template(place: Place) -> None:
    place.stage.engine.behaviour.template_shown = (
        "{% for m in messages %}{{ m.content }}{% endfor %}"
    )


def pickled_hashes(place: Place) -> None:
    for engine in place.stage.engines:
        assert engine.plugin is not None
        engine.plugin.namespace = replace(engine.plugin.namespace, hash_algorithm="sha256")


def uncounted(place: Place) -> None:
    place.stage.engine.behaviour.hides_cached = True


def tier_suspended(place: Place) -> None:
    place.stage.engine.behaviour.tiers_told = {"valkey": {"suspended": 1, "writes_suspended": 0}}


def other_revision(place: Place) -> None:
    plugin = place.stage.engine.plugin
    assert plugin is not None
    plugin.namespace = replace(plugin.namespace, revision="another")


@pytest.mark.parametrize(
    ("spoil", "check", "level", "do"),
    [
        (unreadable_toml, "config", "error", "scopekv gateway --help"),
        (unknown_setting, "config", "error", "scopekv gateway --help"),
        (open_to_all, "keys", "error", "chmod 600"),
        (broken_key, "keys", "error", "copy"),
        (no_registry, "registry", "error", "URL"),
        (engine_down, "engine", "error", "start it"),
        (wrong_api_key, "engine", "error", "api_key"),
        (wrong_url, "engine", "error", "url"),
        (no_plugin, "plugin", "error", "pip install scopekv"),
        (other_keys, "plugin", "error", "ticket-keys.json"),
        (other_group, "plugin", "error", "SCOPEKV_INSTANCE_GROUP"),
        (self_check, "plugin", "error", "log"),
        (other_template, "template", "warning", "template"),
        (pickled_hashes, "hashing", "warning", "sha256_cbor"),
        (uncounted, "answers", "warning", "--enable-prompt-tokens-details"),
        (tier_suspended, "tiers", "warning", "store"),
        (other_revision, "agreement", "warning", "same"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
async def test_each_misconfiguration_is_found_and_says_what_to_do(
    place: Place, spoil: Spoil, check: str, level: str, do: str
) -> None:
    spoil(place)
    found, code = await diagnosed(place)
    wrong = [row for row in found if row["level"] != "ok" and row["check"] != "events"]
    assert [(row["check"], row["level"]) for row in wrong if row["check"] == check]
    first = next(row for row in wrong if row["check"] == check)
    assert first["level"] == level
    assert do in first["do"]
    assert code == (1 if level == "error" else 0)
    assert {row["check"] for row in wrong} == {check}, "and nothing that is well"


async def test_a_good_deployment_has_nothing_but_quiet_events(place: Place) -> None:
    found, code = await diagnosed(place)
    assert code == 0
    assert {row["check"] for row in found if row["level"] != "ok"} == {"events"}
    assert ENGINE_KEY not in json.dumps(found)


async def test_a_clock_that_is_off(place: Place) -> None:
    fleet = place.stage.deployment.gateway.fleet
    found = await examine(fleet, place.folder, now=lambda: time.time() - 300)
    (first, *_) = [one for one in found if one.check == "clock"]
    assert first.level is Level.ERROR
    assert "+300" in first.what or "+299" in first.what
    assert "NTP" in first.do


def test_a_registry_url_with_a_password_shows_none_of_it() -> None:
    found, registry = registry_of("postgresql://scopekv:hunter2@127.0.0.1:9/scopekv")
    assert registry is None
    assert "hunter2" not in repr(found)
    assert isinstance(found, Finding)
