"""Dashboard and alert rules name metrics, labels and values that exist."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from scopekv.gateway.metrics import Metrics
from scopekv.simulate.stage import Stage
from scopekv.store.counts import COUNTERS

ROOT = Path(__file__).parents[3]
BOARD = ROOT / "deploy" / "grafana" / "scopekv.json"
RULES = ROOT / "deploy" / "prometheus" / "scopekv.rules.yml"
OFFLOADING = ROOT / "src" / "scopekv" / "engines" / "vllm" / "offloading" / "metrics.py"
_NAME = re.compile(r"\b(?:scopekv|vllm)[_:][a-z0-9_]+")
_MATCHER = re.compile(r"([a-z0-9_:]+)\{([^}]*)\}")
_SAMPLES = ("_bucket", "_sum", "_count")


def expressions() -> Iterator[str]:
    for panel in json.loads(BOARD.read_text())["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"]
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        for rule in group["rules"]:
            yield rule["expr"]


def engine_metrics() -> set[str]:
    """The plugin's own, from its source: importing it would import vLLM."""
    tree = ast.parse(OFFLOADING.read_text())
    values = [node.value for node in tree.body if isinstance(node, ast.Assign)]
    return {
        str(value.value)
        for value in values
        if isinstance(value, ast.Constant) and str(value.value).startswith("scopekv:")
    }


def base(name: str) -> str:
    for suffix in (*_SAMPLES, "_total"):
        name = name.removesuffix(suffix)
    return name


@pytest.mark.asyncio(loop_scope="module")
async def test_every_metric_of_dashboard_and_rules_is_told(
    stage: Stage, keys: dict[str, str]
) -> None:
    await stage.client.chat(keys["alice"], "a question")
    answer = await stage.client.send("GET", "/metrics", key=keys["root"])
    told = set(re.findall(r"^# TYPE (\w+)", answer.content.decode(), re.MULTILINE))
    named = {name for text in expressions() for name in _NAME.findall(text)}
    ours = {name for name in named if name.startswith("scopekv_")}
    assert len(ours) > 12
    assert {name for name in ours if name not in told and base(name) not in told} == set()
    plugin = {name for name in named if name.startswith("scopekv:")}
    assert plugin
    assert {base(name) for name in plugin} - engine_metrics() == set()


def test_every_metric_of_vllm_is_in_its_source() -> None:
    spec = find_spec("vllm")  # looks, imports nothing
    if spec is None or spec.origin is None:
        pytest.skip("needs the engine-cpu extra")
    source = (Path(spec.origin).parent / "v1" / "metrics" / "loggers.py").read_text()
    named = {name for text in expressions() for name in _NAME.findall(text)}
    lost = {n for n in named if n.startswith("vllm:") and f'"{base(n)}"' not in source}
    assert lost == set()


def test_labels_of_our_metrics_exist_and_events_are_counted() -> None:
    labels = {base(one.name): set(one.labels) for one in Metrics().described}
    for text in expressions():
        for name, matchers in _MATCHER.findall(text):
            used = set(re.findall(r"(\w+)(?:=~|=|!=)", matchers))
            if base(name) in labels:
                assert used <= labels[base(name)], text
            for events in re.findall(r'event=~?"([^"]+)"', matchers):
                assert set(events.split("|")) <= set(COUNTERS), text


def test_the_dashboard_is_whole() -> None:
    board = json.loads(BOARD.read_text())
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in board["panels"]:
        if panel["type"] != "row":
            assert panel["title"], panel["id"]
            assert panel["description"].endswith("."), panel["title"]
            assert panel["targets"], panel["title"]
    places = [(p["gridPos"]["x"], p["gridPos"]["y"]) for p in board["panels"]]
    assert len(set(places)) == len(places)


def test_every_rule_says_how_bad_and_what() -> None:
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        names = [rule["alert"] for rule in group["rules"]]
        assert len(set(names)) == len(names)
        for rule in group["rules"]:
            assert rule["labels"]["severity"] in {"critical", "warning"}
            assert rule["annotations"]["summary"]
