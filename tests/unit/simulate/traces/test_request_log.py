"""The gateway's request log as a trace: in order of arrival, with its senders."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scopekv.core.request_log import LoggedRequest, encode_logged
from scopekv.core.scopes import ScopeKind
from scopekv.errors import Misuse
from scopekv.simulate.traces import TraceFormat, open_trace

NAMES = tuple(f"{number:016x}" for number in range(1, 9))
KINDS = ((ScopeKind.DOCUMENT, 1), (ScopeKind.ORG, 1), (ScopeKind.USER, 1))


def logged(at_ms: int, user: int, org: int, tokens: int = 100) -> bytes:
    count = tokens // 32
    kinds = KINDS if count == 3 else ((ScopeKind.USER, count),)
    return encode_logged(
        LoggedRequest(at_ms, tokens, 2, 32, NAMES[:count], kinds, NAMES[org], NAMES[user])
    )


def test_requests_come_in_order_of_arrival_with_their_senders(tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    path.write_bytes(logged(5_000, 1, 0) + logged(4_000, 2, 0) + logged(4_500, 1, 0))
    trace = open_trace(path)
    assert trace.format is TraceFormat.REQUEST_LOG
    found = list(trace)
    assert [one.at_seconds for one in found] == [0.0, 0.5, 1.0]
    assert [(one.user, one.org) for one in found] == [(1, 0), (0, 0), (0, 0)]
    assert (found[0].tools_tokens, found[0].system_tokens) == (32, 32)


def test_what_is_after_the_last_full_block_is_never_found_again(tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    path.write_bytes(logged(0, 1, 0) * 2 + logged(1, 1, 0, tokens=128))
    one, same, longer = open_trace(path)
    assert one.block_ids[:3] == same.block_ids[:3] == longer.block_ids[:3]
    assert one.block_ids[3] != same.block_ids[3]
    assert len(longer.block_ids) == 4


def test_a_line_that_is_none_is_named(tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    path.write_bytes(logged(0, 1, 0) + b'{"format":"scopekv/requests/1"}\n')
    with pytest.raises(Misuse, match="line 2"):
        list(open_trace(path))


@pytest.mark.parametrize(
    "change",
    [
        {"timestamp": 10**400},
        {"output_length": 10**30},
        {"hash_ids": [NAMES[0]] * 3},
        {"scopes": [["user", -1], ["org", 4]]},
        {"block_size": 33},
    ],
)
def test_what_cannot_be_is_named(tmp_path: Path, change: dict[str, object]) -> None:
    path = tmp_path / "requests.jsonl"
    path.write_bytes(logged(0, 1, 0) + json.dumps(json.loads(logged(1, 1, 0)) | change).encode())
    with pytest.raises(Misuse, match="line 2"):
        list(open_trace(path))
