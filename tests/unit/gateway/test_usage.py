"""The tiers' report is the gateway's: clients see it as detail they asked for, or not at all."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scopekv.core.scopes import Scope, ScopeKind
from scopekv.core.segments import Segment
from scopekv.gateway.apis.messages import MESSAGES_API
from scopekv.gateway.usage import (
    Shares,
    StreamTap,
    Usage,
    read_usage,
    take_report,
    with_detail,
)

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
    crlf=st.booleans(),
)
def test_how_a_stream_is_cut_changes_nothing(
    events: list[bytes], cuts: list[int], asked: bool, detailed: bool, crlf: bool
) -> None:
    if crlf:
        events = [event.replace(b"\n", b"\r\n") for event in events]
    shares, data = Shares((MINE,)) if detailed else None, b"".join(events)
    alone, together = (StreamTap(asked=asked, shares=shares) for _ in range(2))
    expected = b"".join(map(alone.feed, events))
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    passed = b"".join(together.feed(data[a:b]) for a, b in pairwise(edges)) + together.rest()
    assert (passed, together.usage) == (expected, alone.usage)


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("field", [b"data: ", b"data:"])
def test_events_go_on_as_they_come_whatever_ends_their_lines(end: bytes, field: bytes) -> None:
    """Held back to the end of the stream, they would be no stream (sse-starlette writes CRLF)."""
    tap = StreamTap(asked=True, shares=None)
    words = field + compact({"choices": [{"delta": {"content": "a"}}]}) + end * 2
    last = field + compact({"choices": [], "usage": USAGE}) + end + b"id: 7" + end * 2
    assert [tap.feed(event) for event in (words, words, last)] == [words, words, last]
    assert tap.usage == Usage(40, 0, 32)
    unasked = StreamTap(asked=False, shares=None)
    assert [unasked.feed(event) for event in (words, last)] == [words, b""]


@pytest.mark.parametrize(
    "told",
    [
        {"prompt_tokens": -5},
        {"prompt_tokens": 40, "completion_tokens": -1},
        {"prompt_tokens": 10**30},
        {"prompt_tokens": 40, "prompt_tokens_details": {"cached_tokens": -7}},
        {"input_tokens": 4, "cache_read_input_tokens": -7},
        {"prompt_tokens": "40"},
        {"prompt_tokens": True},
    ],
)
def test_what_is_no_count_is_no_usage(told: object) -> None:
    """One engine's nonsense must not spoil the sums of all, nor stop a scrape of the metrics."""
    assert read_usage(compact({"usage": told})) is None


def test_no_more_is_cached_than_was_sent() -> None:
    told = {"prompt_tokens": 40, "prompt_tokens_details": {"cached_tokens": 700}}
    assert read_usage(compact({"usage": told})) == Usage(40, 0, 40)


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_a_message_whose_last_event_tells_its_answer_alone_was_read_all_the_same(
    end: bytes,
) -> None:
    """As Anthropic documents streams: the beginning tells the input, the end the output."""
    tap = MESSAGES_API.tap({}, None, {"id": "msg_ours"})
    input_ = {"input_tokens": 8, "cache_read_input_tokens": 32, "output_tokens": 1}
    start = {"type": "message_start", "message": {"id": "msg_theirs", "usage": input_}}
    delta = {"type": "message_delta", "usage": {"output_tokens": 15}}
    told = [
        tap.feed(b"event: " + name + end + b"data: " + compact(event) + end * 2)
        for name, event in ((b"message_start", start), (b"message_delta", delta))
    ]
    assert b"msg_ours" in told[0]
    assert b"msg_theirs" not in told[0]
    assert tap.usage == Usage(40, 15, 32)
