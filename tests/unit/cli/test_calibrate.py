"""`scopekv calibrate`: the fit of what was measured, and a whole round against an engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from scopekv.cli.calibrate import EngineAsked, measure
from scopekv.cli.main import main
from scopekv.errors import ConfigError, Misuse
from scopekv.gateway.http import Reply, Request
from scopekv.simulate.engine import SimulatedEngine
from scopekv.simulate.fleet.calibration import (
    Burst,
    Capacity,
    Decoded,
    Observed,
    capacity_of,
    curve_of,
    speeds_of,
    tier_speeds,
)
from scopekv.simulate.fleet.speeds import BUILT_IN, Speeds, as_json, read_speeds
from scopekv.simulate.model import SimulatedModel

METRICS = b"""# HELP vllm:cache_config_info Information of the LLMEngine CacheConfig
vllm:cache_config_info{block_size="32",cache_dtype="auto",num_gpu_blocks="120"} 1.0
vllm:num_requests_running{engine="0"} 0.0
"""
TIERS: dict[str, Any] = {
    "host": {"blocks": 3, "block_bytes": 1_474_560},
    "directory": {
        "speed": {"latency_seconds": 0.002, "bytes_per_second": 1e9, "samples": 9, "spread": 1.2}
    },
    "valkey": {
        "speed": {"latency_seconds": 0.1, "bytes_per_second": 1e8, "samples": 0, "spread": 1.0}
    },
}


def seconds(cached: int, total: int) -> float:
    return 0.05 + 0.001 * (total - cached) + 1e-7 * (total**2 - cached**2) / 2


def test_the_curve_is_found_again() -> None:
    spans = [(0, 64), (0, 256), (0, 1024), (0, 4096), (2048, 3072), (512, 768)]
    curve = curve_of([Observed(a, b, seconds(a, b)) for a, b in spans])
    for a, b in [(0, 100), (0, 3000), (1000, 2000)]:
        assert curve.seconds(a, b) == pytest.approx(seconds(a, b), rel=0.05)


def test_what_does_not_keep_the_engine_busy_is_overhead() -> None:
    spans = [(0, 64), (0, 512), (0, 2048), (1024, 1280)]
    found = speeds_of(
        "m",
        "a test",
        observed=[Observed(a, b, seconds(a, b)) for a, b in spans],
        decoded=[Decoded(2, 0.02), Decoded(1, 0.01), Decoded(4, 0.015)],
        burst=Burst(count=5, computed_tokens=10, all_seconds=0.14, one_seconds=0.06),
        capacity=Capacity(3840, 46_080),
        tiers=tier_speeds(TIERS),
        sequences_max=8,
    )
    assert found.prefill.fixed_seconds == pytest.approx(0.01, abs=0.002)
    assert found.overhead_seconds == pytest.approx(0.04, abs=0.006)
    assert [step.seconds for step in found.steps] == [0.01, 0.02, 0.02]  # more is never faster
    assert set(found.tiers) == {"disk"}  # no sample, no speed


def test_memory_is_read_from_metrics_and_the_host_tier() -> None:
    assert capacity_of(METRICS, TIERS, None) == Capacity(3840, 46_080)
    assert capacity_of(METRICS, {}, 7) == Capacity(3840, 7)
    with pytest.raises(Misuse, match="--kv-bytes-per-token"):
        capacity_of(METRICS, {}, None)
    with pytest.raises(Misuse, match="is this a vLLM server"):
        capacity_of(b"up 1", TIERS, None)


@pytest.mark.parametrize("name", list(BUILT_IN))
def test_a_model_is_read_as_it_was_written(tmp_path: Path, name: str) -> None:
    file = tmp_path / "model.json"
    file.write_text(json.dumps(as_json(BUILT_IN[name])))
    assert read_speeds(str(file)) == BUILT_IN[name] == read_speeds(name)


def test_a_file_that_is_no_model_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "model.json"
    file.write_text('{"name": "half"}')
    with pytest.raises(ConfigError, match="missing required field"):
        read_speeds(str(file))
    file.write_text(json.dumps(as_json(BUILT_IN["a100-8b"]) | {"format": "other"}))
    with pytest.raises(ConfigError, match="not of the form"):
        read_speeds(str(file))


def test_between_measured_steps_lie_straight_lines() -> None:
    model: Speeds = BUILT_IN["a100-8b"]
    assert model.step_seconds(0) == 0
    assert model.step_seconds(1) == 0.0085
    assert 0.0085 < model.step_seconds(32) < 0.017
    assert model.step_seconds(300) > model.step_seconds(256)


class MeasuredEngine(SimulatedEngine):
    """One that answers what vLLM and the plugin say of memory and tiers."""

    async def _serve(self, request: Request, reply: Reply) -> None:
        if request.path == "/metrics":
            reply.send(200, [(b"content-type", b"text/plain")], METRICS)
        elif request.path == "/v1/scopekv/tiers":
            content = msgspec.json.encode({"tiers": TIERS})
            reply.send(200, [(b"content-type", b"application/json")], content)
        else:
            await super()._serve(request, reply)


async def test_an_engine_is_measured_through_its_api(model: SimulatedModel, tmp_path: Path) -> None:
    said: list[str] = []
    async with MeasuredEngine(model, keys_path=None, api_key="k") as engine:
        engine.behaviour.token_seconds = 1e-4
        asked = EngineAsked(
            url=engine.url,
            model=model.name,
            key="k",
            tokens_max=512,
            concurrency_max=2,
            vocabulary=10_000,
            kv_bytes_per_token=None,
            seed=1,
        )
        found = await measure(asked, said.append)
    assert (found.engine_tokens, found.kv_bytes_per_token) == (3840, 46_080)
    assert found.prefill.token_seconds > 0
    assert [step.sequences for step in found.steps] == [1, 2]
    assert any("decode" in line for line in said)
    out = tmp_path / "model.json"
    out.write_text(json.dumps(as_json(found)))
    result = CliRunner().invoke(main, ["simulate", "routing", "--model", str(out), "--json"])
    assert json.loads(result.stdout)["plan"]["engine_model"]["name"] == model.name


def test_where_nobody_listens_the_error_is_one_line(tmp_path: Path) -> None:
    words = ["calibrate", "http://127.0.0.1:9", "--model", "m", "--out", str(tmp_path / "m.json")]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 1
    assert "Traceback" not in result.output
    assert not (tmp_path / "m.json").exists()
