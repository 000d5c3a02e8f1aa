"""`scopekv simulate`: what it prints, for people and programs, draws and refuses."""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from scopekv.cli.main import main


def call(*words: str) -> Result:
    return CliRunner().invoke(main, ["simulate", *words])


def figures(*words: str) -> dict[str, Any]:
    result = call(*words, "--json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def trace_file(folder: Path, requests: int = 40) -> Path:
    """Conversations of two turns on one document, behind one system block."""
    lines = []
    for number in range(requests):
        session, turn = number // 2, number % 2
        ids = [1, 2, 3, 1000 + session, *([2000 + session] if turn else [])]
        length = 512 * len(ids) - 12
        fields = {"input_length": length, "output_length": 12, "hash_ids": ids}
        lines.append(json.dumps({"timestamp": number * 500, **fields}))
    file = folder / "small.jsonl"
    file.write_text("\n".join(lines) + "\n")
    return file


def test_the_worked_example_for_people() -> None:
    result = call("article", "--isolation", "user")
    assert result.exit_code == 0, result.output
    assert "85.71%" in result.output
    assert "94.29%" in result.output  # what no isolation would find
    for name in ("request hit rate", "TTFT p50", "prefill tokens saved", "fairness"):
        assert name in result.output


def test_the_figures_that_programs_read(tmp_path: Path) -> None:
    file = trace_file(tmp_path)
    found = figures(str(file), "--instances", "2", "--tier", "host=1GiB,remote=4GiB", "--seed", "3")
    for key in ("token_hit_rate", "allowed", "oracle", "ttft_ms_p50", "ttft_ms_p99"):
        assert isinstance(found[key], float)
    assert set(found["by_scope"]) == {"document", "org", "user"}
    assert set(found["by_tier"]) == {"engine", "host", "remote"}
    assert found["requests"] == found["trace_requests"] == 40
    assert found["plan"]["tenants"].startswith("orgs=20,users=400")
    assert found["tenants_drawn"]
    assert 0 < found["token_hit_rate"] <= found["allowed"] <= found["oracle"]


def test_a_sweep_runs_each_combination() -> None:
    found = figures(
        "routing",
        "--engine-memory",
        "3840",
        "--sweep",
        "route=scopekv,random",
        "--sweep",
        "instances=1,2",
    )
    swept = [run["swept"] for run in found["runs"]]
    assert swept == [
        {"route": route, "instances": count} for route in ("scopekv", "random") for count in "12"
    ]
    assert call("routing", "--sweep", "isolation=none,user").output.count("%") >= 8


def _alike(tmp_path: Path, requests: int, apart_ms: int, tokens: tuple[int, int]) -> str:
    """A trace of prompts that share nothing, all of these input and output tokens."""
    file = tmp_path / "alike.jsonl"
    blocks = -(-tokens[0] // 512)
    lines = [
        {
            "timestamp": number * apart_ms,
            "input_length": tokens[0],
            "output_length": tokens[1],
            "hash_ids": list(range(number * blocks, (number + 1) * blocks)),
        }
        for number in range(requests)
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(file)


@pytest.mark.parametrize("tokens", [(12_288, 8), (1_024, 6_000)], ids=["prefill", "decode"])
def test_too_few_instances_are_told_of_and_how_many_would_keep_up(
    tmp_path: Path, tokens: tuple[int, int]
) -> None:
    trace = _alike(tmp_path, 800, 200, tokens)
    few = figures(trace, "--instances", "2")
    enough = few["instances"]["enough"]
    assert enough > 2
    assert few["instances"]["late_seconds"] > 30
    kept_up = figures(trace, "--instances", str(enough))
    assert kept_up["instances"]["enough"] == enough
    assert kept_up["ttft_ms_p50"] < few["ttft_ms_p50"] / 5
    assert f"About {enough} would keep up" in call(trace, "--instances", "2").output
    swept = call(trace, "--sweep", f"instances=2,{enough}").output
    assert "instances=2: too few" in swept
    assert swept.count("too few") == 1


def test_of_a_burst_nobody_can_tell_how_many_would_keep_up(tmp_path: Path) -> None:
    trace = _alike(tmp_path, 100, 1, (12_288, 8))
    assert figures(trace, "--instances", "2")["instances"]["enough"] == 2


def test_limit_and_prices(tmp_path: Path) -> None:
    file = str(trace_file(tmp_path))
    found = figures(file, "--limit", "10", "--prices", "instance_hour=3600")
    assert found["requests"] == 10
    assert found["cost"]["total"] == pytest.approx(found["simulated_seconds"])
    assert "cost" in call(file, "--prices", "instance_hour=2").output


def test_conversations_without_their_own_time_are_given_one(tmp_path: Path) -> None:
    line = {
        "id": "any",
        "block_size": 64,
        "tool_tokens": 1024,
        "system_tokens": 64,
        "models": ["m"],
        "requests": [[0.0, 2000, 9, "", 0, 0, [1, 31]], [9.0, 2100, 9, "", 0, 1.0, [1, 32]]],
    }
    file = tmp_path / "coding.jsonl"
    file.write_text("\n".join(json.dumps(line) for _ in range(5)))
    found = figures(str(file), "--arrivals", "rate=0.5")
    assert (found["requests"], found["block_tokens"]) == (10, 64)
    assert found["by_scope"]["document"]["token_hit_rate"] == 0.9  # equal tools are shared


def test_a_trace_may_come_through_a_pipe(tmp_path: Path) -> None:
    file = trace_file(tmp_path)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(file.read_bytes()))
    writer.start()
    piped = figures(str(pipe))
    writer.join()
    result = CliRunner().invoke(main, ["simulate", "-", "--json"], input=file.read_text())
    told = json.loads(result.stdout)
    assert (piped["trace"], told["trace"]) == ("pipe", "standard-input")
    direct = figures(str(file))
    for found in (piped, told):
        assert {**found, "trace": direct["trace"]} == direct


def test_a_prompt_that_no_engine_can_hold_is_in_no_rate(tmp_path: Path) -> None:
    file = trace_file(tmp_path)
    fields = {"timestamp": 9_500, "input_length": 2_000_000, "output_length": 1}
    huge = json.dumps({**fields, "hash_ids": [1, *range(10**6, 10**6 + 3906)]}) + "\n"
    larger = tmp_path / "larger.jsonl"
    larger.write_text(file.read_text() + huge)
    found, without = figures(str(larger)), figures(str(file))
    assert (found["requests"], found["rejected"]) == (40, 1)
    assert found["token_hit_rate"] <= found["allowed"] <= found["oracle"]
    assert found["oracle"] == without["oracle"]
    assert "rejected" in call(str(larger), "--sweep", "seed=1,2").output
    assert "rejected" not in call(str(file), "--sweep", "seed=1,2").output


def test_timestamps_are_of_the_unit_that_is_said(tmp_path: Path) -> None:
    file = trace_file(tmp_path)
    assert figures(str(file))["trace_seconds"] == 19.5
    assert figures(str(file), "--timestamps", "s")["trace_seconds"] == 19_500
    assert "in 19,500.0 s" in call(str(file), "--timestamps", "s").output
    csv = tmp_path / "a.csv"
    csv.write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n0,5,1\n")
    assert "leave --timestamps out" in call(str(csv), "--timestamps", "s").output


def timed_file(folder: Path, *times: float) -> Path:
    fields = {"input_length": 512, "output_length": 1, "hash_ids": [1]}
    file = folder / "timed.jsonl"
    file.write_text("".join(json.dumps({"timestamp": at, **fields}) + "\n" for at in times))
    return file


SECONDS = [number * 0.35 for number in range(60)]
DOUBTED = [
    ("s", SECONDS),
    ("s", list(map(int, SECONDS))),
    ("s", [1_750_000_000 + at for at in SECONDS]),
    ("s", [1_750_000_000 + 9_000 * number for number in range(3)]),
    ("us", [(1_750_000_000 + at) * 1e6 for at in SECONDS]),
]


@pytest.mark.parametrize(("unit", "times"), DOUBTED)
def test_times_that_seem_to_be_of_another_unit_are_told_of(
    tmp_path: Path, unit: str, times: list[float]
) -> None:
    file = timed_file(tmp_path, *times)
    result = call(str(file), "--json")
    assert json.loads(result.stdout)["trace_requests"] == len(times), "nothing is guessed"
    assert f"If they are in {unit}: --timestamps {unit};" in result.stderr
    assert len(result.stderr.strip().splitlines()) <= 2, "a warning is no broken line"
    for said in (unit, "ms"):
        assert "Warning" not in call(str(file), "--timestamps", said, "--json").stderr


@pytest.mark.parametrize(
    "times",
    [
        [0],
        [0, 0, 0],
        [at * 1000 for at in SECONDS],
        [1_750_000_000_000 + 350 * number for number in range(60)],
        [number * 25.5 for number in range(60)],
    ],
)
def test_times_that_may_be_milliseconds_are_believed(tmp_path: Path, times: list[float]) -> None:
    assert "Warning" not in call(str(timed_file(tmp_path, *times)), "--json").stderr


def test_plots_are_drawn_and_named(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    folder = tmp_path / "new" / "plots"
    result = call("routing", "--sweep", "engine-memory=1000,4000", "--plot", str(folder))
    assert result.exit_code == 0, result.output
    names = {path.name for path in folder.iterdir()}
    assert names == {"isolation.png", "timeline.png", "heat.png", "hit-rate.png"}
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in folder.iterdir())


def test_without_matplotlib_the_message_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = call("article", "--plot", str(tmp_path))
    assert result.exit_code == 1
    assert "pip install 'scopekv[bench]'" in result.output


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["nowhere.jsonl"], "nowhere.jsonl cannot be read"),
        (["article", "--engine-memory", "much"], "write tokens (3M, 1500000), bytes (40GiB)"),
        (["article", "--engine-memory", "100"], "less than one block of 500"),
        (["article", "--tier", "tape=1TiB"], "'tape' is none of host, disk, remote"),
        (["article", "--tier", "host"], "write NAME=VALUE"),
        (["article", "--sweep", "weather=a,b"], "write KEY=A,B,C"),
        (["article", "--instances", "0"], "1 to 10,000 instances"),
        (["article", "--instances", "two"], "is no number"),
        (["article", "--tenants", "orgs=9,users=3"], "cannot fill 9"),
        (["article", "--model", "gpu-of-tomorrow"], "scopekv calibrate"),
        (["article", "--prices", "gold=1"], "instance_hour"),
        (["synthetic:planets=3"], "planets"),
        (["article", "--arrivals", "noon=1"], "arrivals are users=N"),
        (["article", "--arrivals", "users=1"], "article is no file"),
        (["article", "--tenants", "orgs=3"], "article says who sends"),
        (["article", "--limit", "3"], "leave --limit out"),
        (["article:users=0"], "has no requests"),
        (["routing:users=0"], "counts from 1"),
        (["routing:turns=1.5"], "whole numbers"),
        (["routing:block_tokens=0"], "counts from 1"),
        (["article", "--tier", "host=1GiB,host=2GiB"], "is given twice"),
        (["article", "--sweep", "seed=1", "--sweep", "seed=2"], "swept twice"),
        (["article", "--prices", "instance_hour=nan"], "from 0, and finite"),
        (["article", "--instances", ""], "is no number"),
        (["article", "--sweep", "seed=" + ",".join(map(str, range(300)))], "the limit is 200"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(words: list[str], complaint: str) -> None:
    result = call(*words)
    assert result.exit_code != 0
    assert complaint in " ".join(result.output.split())
    assert "Traceback" not in result.output
