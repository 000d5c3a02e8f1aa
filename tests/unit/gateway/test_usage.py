"""The tiers' report is the gateway's: clients see it as detail they asked for, or not at all."""

from __future__ import annotations

import json
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from scopekv.core.scopes import Scope, ScopeKind
from scopekv.core.segments import Segment
from scopekv.gateway.usage import Shares, StreamTap, read_usage, take_report, with_detail

MINE = Segment(0, None, Scope(ScopeKind.USER, ("org-1", "user-1")))
REPORT = {"fetched_blocks": {"directory": 7}, "decision": {"reason": "fetch_pays"}}
USAGE = {"prompt_tokens": 40, "prompt_tokens_details": {"cached_tokens": 32}}


def compact(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def test_the_report_leaves_the_answer() -> None:
    body = compact({"usage": USAGE, "kv_transfer_params": {"scopekv": REPORT}})
    content, report = take_report(body)
    assert report == REPORT
    assert json.loads(content) == {"usage": USAGE, "kv_transfer_params": None}


def test_an_answer_without_one_is_passed_byte_for_byte() -> None:
    said = {"choices": [{"message": {"content": '"kv_transfer_params":{"scopekv":{}}'}}]}
    for answer in (said, {"kv_transfer_params": None}, {"kv_transfer_params": {"other": 1}}):
        body = compact(answer)
        assert take_report(body) == (body, None)


def test_who_asks_for_detail_is_told_what_was_fetched() -> None:
    body = compact({"usage": USAGE, "kv_transfer_params": {"scopekv": REPORT}})
    content, report = take_report(body)
    usage = read_usage(content)
    assert usage is not None
    told = json.loads(with_detail(content, usage, Shares((MINE,)), report))["scopekv"]
    assert told["tiers"] == REPORT
    assert told["segments"] == [{"scope": "user", "tokens": 40, "cached_tokens": 32}]


@given(
    events=st.lists(
        st.sampled_from(
            [
                b'data: {"choices":[{"delta":{"content":"a \\"usage\\" of"}}]}\n\n',
                b'data: {"choices":[{"delta":{"content":"\\n\\n"}}],"usage":null}\n\n',
                b'data: {"choices":[{"delta":{}}],"usage":{"prompt_tokens":4}}\n\n',
                b'data: {"choices":[],"usage":{"prompt_tokens":40,"completion_tokens":2}}\n\n',
                b": a comment\n\n",
                b"data: [DONE]\n\n",
            ]
        ),
        max_size=12,
    ),
    cuts=st.lists(st.integers(0, 600)),
    asked=st.booleans(),
    detailed=st.booleans(),
)
def test_how_a_stream_is_cut_changes_nothing(
    events: list[bytes], cuts: list[int], asked: bool, detailed: bool
) -> None:
    shares, data = Shares((MINE,)) if detailed else None, b"".join(events)
    alone, together = (StreamTap(asked=asked, shares=shares) for _ in range(2))
    expected = b"".join(map(alone.feed, events))
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    passed = b"".join(together.feed(data[a:b]) for a, b in pairwise(edges)) + together.rest()
    assert (passed, together.usage) == (expected, alone.usage)
