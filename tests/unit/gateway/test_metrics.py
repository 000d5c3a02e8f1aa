"""What the gateway counts, and that no name of a tenant is among it unless switched on."""

from __future__ import annotations

import re
from pathlib import Path

from scopekv.core.scopes import ScopeKind
from scopekv.gateway.metrics import InstanceNow, Metrics
from scopekv.gateway.settings import GatewaySettings, MetricsSettings
from scopekv.gateway.settings_file import read_settings
from scopekv.simulate.model import SimulatedModel
from scopekv.simulate.stage import Stage


def test_an_organisation_is_a_label_only_where_it_was_switched_on() -> None:
    for switched_on in (False, True):
        metrics = Metrics(org_label=switched_on)
        metrics.counted(100, {ScopeKind.DOCUMENT: 60, ScopeKind.USER: 20}, "acme")
        text = metrics.text().decode()
        assert ("acme" in text) is switched_on
        assert ('scopekv_org_cached_tokens_total{org="acme"} 80.0' in text) is switched_on
        assert "scopekv_input_tokens_total 100.0" in text


def test_an_instance_that_is_gone_leaves_no_line() -> None:
    metrics = Metrics()
    row = InstanceNow("gpu-0", "in_use", "scoped", 3, 0.5)
    rows = {("engines", ""): 2, ("upstream", "gpt"): 1}
    metrics.now(waiting=rows, running=3, instances=[row])
    assert 'requests_waiting{at="upstream",upstream="gpt"} 1.0' in metrics.text().decode()
    assert 'scopekv_instance_requests{engine="gpu-0"} 3.0' in metrics.text().decode()
    metrics.now(waiting={("engines", ""): 0}, running=0, instances=[])
    text = metrics.text().decode()
    assert "gpu-0" not in text
    assert 'scopekv_requests_waiting{at="engines",upstream=""} 0.0' in text


def test_what_is_described_is_what_is_told() -> None:
    metrics = Metrics(org_label=True)
    told = re.findall(r"^# TYPE (\S+) (\S+)", metrics.text().decode(), re.MULTILINE)
    own = [(name, kind) for name, kind in told if not name.endswith("_created")]
    assert sorted(own) == sorted((one.name, one.kind) for one in metrics.described)


def test_the_setting_is_read(tmp_path: Path) -> None:
    path = tmp_path / "scopekv.toml"
    path.write_text('[metrics]\norg_label = true\n[[instances]]\nname = "e"\nurl = "http://h:1"\n')
    assert read_settings(path).metrics == MetricsSettings(org_label=True)


async def test_a_gateway_tells_load_engines_and_first_tokens(
    tmp_path: Path, model: SimulatedModel
) -> None:
    settings = GatewaySettings(
        (), port=0, stop_seconds_max=0.5, metrics=MetricsSettings(org_label=True)
    )
    async with Stage(tmp_path, model, settings=settings) as stage:
        key = stage.deployment.account("acme", "alice")
        root = stage.deployment.account("hq", "root", roles=["operator"])
        await stage.client.chat(key, "a question", stream=True)
        text = (await stage.client.send("GET", "/metrics", key=root)).content.decode()
    assert 'scopekv_instances{isolation="scoped",state="in_use"} 1.0' in text
    assert 'scopekv_instance_requests{engine="engine-0"} 0.0' in text
    assert "scopekv_ttft_seconds_count 1.0" in text
    assert "scopekv_requests_running 0.0" in text
    assert 'scopekv_org_input_tokens_total{org="acme"}' in text
    assert "alice" not in text
