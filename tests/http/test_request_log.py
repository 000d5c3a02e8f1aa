"""The request log: what was served can be replayed, and holds no word of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scopekv.gateway.settings import GatewaySettings, RequestLogSettings
from scopekv.simulate.fleet.plan import FleetPlan
from scopekv.simulate.fleet.replay import replay
from scopekv.simulate.fleet.workloads import from_trace
from scopekv.simulate.model import SimulatedModel
from scopekv.simulate.stage import Stage, text_of
from scopekv.simulate.traces import open_trace

pytestmark = pytest.mark.asyncio(loop_scope="module")
ASKED = [("alice", "one"), ("bob", "one"), ("alice", "one"), ("pat", "one"), ("alice", "two")]


async def _play(stage: Stage) -> tuple[int, int]:
    """Ask, each a question on the handbook; return (tokens found, tokens asked)."""
    deployment, handbook = stage.deployment, text_of("handbook", 90)
    orgs = {"alice": "acme", "bob": "acme", "pat": "globex"}
    keys = {name: deployment.account(org, name) for name, org in orgs.items()}
    deployment.publish("handbook", "public", handbook)
    await stage.look()
    cached = asked = 0
    for name, question in ASKED:
        messages = [
            {"role": "system", "content": handbook},
            {"role": "user", "content": text_of(f"{name} {question}", 40)},
        ]
        fields: dict[str, Any] = {"messages": messages, "stream": question == "two"}
        fields |= {"stream_options": {"include_usage": True}} if fields["stream"] else {}
        answer = await stage.client.chat(keys[name], "", **fields)
        usage = answer.events[-1]["usage"] if fields["stream"] else answer.json["usage"]
        asked += usage["prompt_tokens"]
        cached += usage["prompt_tokens_details"]["cached_tokens"]
    return cached, asked


async def test_a_replay_of_the_log_finds_what_the_engine_found(
    model: SimulatedModel, tmp_path: Path
) -> None:
    path = tmp_path / "requests.jsonl"
    settings = GatewaySettings((), port=0, request_log=RequestLogSettings(path))
    async with Stage(tmp_path, model, settings=settings) as stage:
        cached, asked = await _play(stage)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(lines) == len(ASKED)
    assert sum(line["cached"] for line in lines) == cached > 0
    assert [line["ttft_ms"] is not None for line in lines] == [q == "two" for _, q in ASKED]
    assert len({line["user"] for line in lines}) == 3
    assert len({line["org"] for line in lines}) == 2
    said = path.read_text()
    assert not any(word in said for word in ("alice", "acme", "handbook", "engine-0", "user:"))
    workload = from_trace(open_trace(path))
    assert workload.known_tenants
    figures = replay(FleetPlan(), workload)
    assert figures["input_tokens"] == asked
    # The document is read by the warmer before anybody asks, which is no request.
    warmed = next(n for kind, n in lines[0]["scopes"] if kind == "document")
    first = lines[0]["cached"]
    assert first in (0, warmed * lines[0]["block_size"])
    assert figures["allowed"] == (cached - first) / asked
    assert figures["by_scope"]["document"]["input_tokens"] == warmed * workload.block_tokens * len(
        ASKED
    )
