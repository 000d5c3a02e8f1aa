"""Readers of traces: each format from a small sample, what is shared, and what a bad line says."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from scopekv.errors import Misuse
from scopekv.simulate.traces import (
    UNKNOWN,
    Arrivals,
    TracedRequest,
    TraceFormat,
    open_trace,
    read_clients,
)
from scopekv.simulate.traces.servegen import HEADER
from scopekv.simulate.traces.trace import in_blocks_of

MOONCAKE = [
    {"timestamp": 0, "input_length": 1000, "output_length": 5, "hash_ids": [0, 1]},
    {"timestamp": 3000, "input_length": 1100, "output_length": 7, "hash_ids": [0, 2, 3]},
]


def conversation(tools: int = 128, *requests: list[Any]) -> dict[str, Any]:
    return {
        "id": "any",
        "block_size": 64,
        "tool_tokens": tools,
        "system_tokens": 64,
        "models": ["m"],
        "requests": list(requests),
    }


FIRST = conversation(128, [0.0, 200, 9, "", 0, 0, [1, 3]], [30.0, 330, 9, "", 0, 5.0, [1, 3, 7, 2]])
SECOND = conversation(128, [5.0, 192, 9, "", 0, 0, [1, 3]])


def write(path: Path, *lines: object) -> Path:
    text = "".join(one if isinstance(one, str) else json.dumps(one) + "\n" for one in lines)
    data = text.encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_mooncakes_lines(tmp_path: Path, name: str) -> None:
    trace = open_trace(write(tmp_path / name, *MOONCAKE))
    assert trace.format is TraceFormat.HASH_IDS
    assert trace.name == "a"
    second = TracedRequest(3.0, 1100, 7, 512, [0, 2, 3], UNKNOWN)
    assert list(trace) == list(trace) == [TracedRequest(0.0, 1000, 5, 512, [0, 1]), second]


def test_hash_ids_of_other_sizes_as_text_and_with_sessions(tmp_path: Path) -> None:
    line = {**MOONCAKE[0], "hash_ids": ["00ff", "0b"], "block_size": 500, "session": 4}
    (request,) = open_trace(write(tmp_path / "t", line))
    assert (len(set(request.block_ids)), request.block_tokens, request.session) == (2, 500, 0)


def test_a_conversations_ids_are_its_own(tmp_path: Path) -> None:
    one, other, third = open_trace(
        write(tmp_path / "t.jsonl", FIRST, SECOND), arrivals=Arrivals(users=2)
    )
    by_session = {request.session: request for request in (one, other, third) if request is not one}
    assert {one.session, *by_session} == {0, 1}
    assert not set(one.block_ids) & set(by_session[1 - one.session].block_ids)
    first = [request for request in (one, other, third) if request.session == 0]
    assert first[0].block_ids[:3] == first[1].block_ids[:3]
    assert len(first[0].block_ids) == 4, "8 tokens after the third block have an id of their own"
    assert first[0].block_ids[3] != first[1].block_ids[3]
    assert first[1].at_seconds - first[0].at_seconds == 30.0
    assert (first[0].tools_tokens, first[0].system_tokens) == (128, 64)


def test_equal_tool_definitions_are_shared_on_request_only(tmp_path: Path) -> None:
    other = conversation(192, [0.0, 192, 9, "", 0, 0, [1, 3]])
    path = write(tmp_path / "t.jsonl", FIRST, SECOND, other)
    ids = {r.session: r.block_ids for r in open_trace(path, share_tools=True)}
    assert ids[0][:2] == ids[1][:2]
    assert not set(ids[0][2:]) & set(ids[1][2:])
    assert not set(ids[2]) & {*ids[0], *ids[1]}


@pytest.mark.parametrize("arrivals", [Arrivals(users=3), Arrivals(rate_per_second=0.1)])
def test_arrivals_are_in_order_and_of_one_seed(tmp_path: Path, arrivals: Arrivals) -> None:
    path = write(tmp_path / "t.jsonl", *[FIRST, SECOND] * 20)
    times = [(r.session, r.at_seconds) for r in open_trace(path, arrivals=arrivals)]
    assert times == [(r.session, r.at_seconds) for r in open_trace(path, arrivals=arrivals)]
    assert [at for _, at in times] == sorted(at for _, at in times)
    assert len(times) == 60
    other = Arrivals(1, arrivals.users, arrivals.rate_per_second)
    assert times != [(r.session, r.at_seconds) for r in open_trace(path, arrivals=other)]


def test_no_more_users_at_once_than_asked_for(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", *[FIRST] * 30)
    spans: dict[int, list[float]] = {}
    for request in open_trace(path, arrivals=Arrivals(users=3)):
        spans.setdefault(request.session, []).append(request.at_seconds)
    for begin, _ in spans.values():
        assert sum(first <= begin <= last for first, last in spans.values()) <= 3


def test_azures_lines_share_nothing(tmp_path: Path) -> None:
    lines = (
        "TIMESTAMP,ContextTokens,GeneratedTokens\n",
        "2023-11-16 18:17:03.9799600,40,10\n",
        "2023-11-16 18:17:04.0319600,3,8\n",
    )
    first, second = open_trace(write(tmp_path / "a.csv", *lines))
    assert first.at_seconds == 0.0
    assert second.at_seconds == pytest.approx(0.052)
    assert (first.input_tokens, second.output_tokens) == (40, 8)
    assert not set(first.block_ids) & set(second.block_ids)


def test_clients_of_servegen(tmp_path: Path) -> None:
    path = write(tmp_path / "c.csv.gz", HEADER + "\n", "m,3,10,2,20,1.5,,217.7\n")
    (client,) = read_clients(path)
    assert (client.model, client.client, client.requests) == ("m", 3, 10)
    assert (client.input_tokens_mean, client.output_tokens_mean) == (None, 217.7)
    with pytest.raises(Misuse, match="use read_clients"):
        open_trace(path)


def test_larger_blocks_are_named_by_their_last_id() -> None:
    request = TracedRequest(0.0, 70, 1, 10, [1, 2, 3, 4, 5, 6, 7])
    assert in_blocks_of(request, 30).block_ids == [3, 6, 7]
    assert in_blocks_of(request, 10) is request
    with pytest.raises(Misuse, match="no multiple"):
        in_blocks_of(request, 25)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{not json\n", "is no whole JSON object"),
        ("[1]\n", "is no JSON object"),
        (
            {"timestamp": 3000, "input_length": 1, "hash_ids": [0]},
            "no 'output_length' that is a whole number from 0",
        ),
        ({**MOONCAKE[1], "input_length": 9999}, "has 3 hash_ids for 9999 tokens"),
        ({**MOONCAKE[1], "hash_ids": [1.5, 1, 2]}, "no whole numbers and no texts"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: object, message: str) -> None:
    path = write(tmp_path / "bad.jsonl", MOONCAKE[1], line)
    with pytest.raises(Misuse, match=message) as raised:
        list(open_trace(path))
    assert f"{path}, line 2" in str(raised.value)


@pytest.mark.parametrize(
    "wrong",
    [
        conversation(128, [0.0, 64, 1, ""]),
        conversation(-1, [0.0, 64, 1, "", 0, 0, [1, 1]]),
        conversation(128, [0.0, 640, 1, "", 0, 0, [1, 1]]),
        conversation(128, [0.0, 64, 1, "", 0, 0, ["a", 1]]),
        {**FIRST, "requests": 7},
        {**FIRST, "requests": [{"at": 1}]},
        {**FIRST, "block_size": 32},
        {**FIRST, "block_size": "6x"},
        conversation(128, [-1.0, 64, 1, "", 0, 0, [1, 1]]),
        conversation(128, [float("inf"), 64, 1, "", 0, 0, [1, 1]]),
        conversation(128, [0.0, 64.5, 1, "", 0, 0, [1, 1]]),
        conversation(128, [0.0, 64, 1, "", 0, 0, [1, 10**12]]),
        conversation(128, [0.0, 64, 1, "", 0, 0, [-1, 1]]),
    ],
)
def test_a_wrong_conversation_is_named(tmp_path: Path, wrong: dict[str, Any]) -> None:
    path = write(tmp_path / "bad.jsonl", FIRST, wrong)
    with pytest.raises(Misuse, match=r"bad\.jsonl, line 2"):
        list(open_trace(path))


def test_what_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="No such file"):
        open_trace(tmp_path / "none")
    whole = write(tmp_path / "t.jsonl.gz", *MOONCAKE[:1] * 500).read_bytes()
    (tmp_path / "torn.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(Misuse, match="torn or cut off"):
        list(open_trace(tmp_path / "torn.gz"))
    for text in ("", "hello\n", '{"a": 1}\n'):
        with pytest.raises(Misuse, match="begins no known trace" if text else "is empty"):
            open_trace(write(tmp_path / "odd", text))
