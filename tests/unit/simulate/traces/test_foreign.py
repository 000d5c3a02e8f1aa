"""Traces as others write them: read as they mean it, or refused with the place and what to do."""

from __future__ import annotations

import bz2
import json
import lzma
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from scopekv.errors import Misuse
from scopekv.simulate.fleet.asking import workload_of
from scopekv.simulate.fleet.identity import Isolation
from scopekv.simulate.fleet.isolation_cost import allowed_by_isolation
from scopekv.simulate.fleet.tenants import TenantSpec
from scopekv.simulate.fleet.workloads import Workload
from scopekv.simulate.traces import TracedRequest, open_trace, ordering

Line = dict[str, Any]


def prompts(block: int, *, count: int = 60, single: bool = False) -> list[Line]:
    """Prompts of a few blocks behind one of three beginnings; `single`: ids of contents."""
    dice, new = random.Random(block), iter(range(1000, 10**6))
    made = []
    for number in range(count):
        ids = [dice.randrange(3)]
        ids += [
            dice.randrange(20, 30) if single else next(new) for _ in range(dice.randrange(1, 6))
        ]
        tokens = len(ids) * block - dice.randrange(block)
        made.append(
            {"timestamp": number * 100, "input_length": tokens, "output_length": 4, "hash_ids": ids}
        )
    return made


def write(path: Path, lines: Sequence[object]) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in lines))
    return path


def opened(path: Path, **words: Any) -> Workload:
    return workload_of(str(path), limit=None, block_tokens=None, arrivals={}, **words)


def found_without_limits(workload: Workload) -> float:
    return allowed_by_isolation(workload, TenantSpec(), 1)[Isolation.NONE]


def reference(lines: Sequence[Line], block: int) -> float:
    """The token hit rate of infinite memory; a prefix is the tuple of its ids."""
    seen: set[tuple[object, ...]] = set()
    hit = total = 0
    for line in lines:
        prefixes = [tuple(line["hash_ids"][:end]) for end in range(1, len(line["hash_ids"]) + 1)]
        blocks = next((n for n, one in enumerate(prefixes) if one not in seen), len(prefixes))
        hit += min(blocks * block, line["input_length"])
        total += line["input_length"]
        seen.update(prefixes)
    return hit / total


@pytest.mark.parametrize("block", [16, 64, 512])
@pytest.mark.parametrize("single", [False, True])
def test_what_is_found_is_what_an_obvious_count_finds(
    tmp_path: Path, block: int, single: bool
) -> None:
    lines = prompts(block, single=single)
    workload = opened(write(tmp_path / "t", lines))
    assert workload.block_tokens == block
    assert found_without_limits(workload) == pytest.approx(reference(lines, block))


def test_ids_may_be_texts_negative_mixed_or_of_64_bits(tmp_path: Path) -> None:
    lines = prompts(512)
    expected = found_without_limits(opened(write(tmp_path / "t", lines)))
    for change in (
        lambda one: f"block {one}",
        lambda one: f"{one:#018x}",
        lambda one: -one,
        lambda one: (one * 0x9E3779B97F4A7C15) % (1 << 64),
        lambda one: str(one) if one % 2 else one,
    ):
        changed = [{**line, "hash_ids": [*map(change, line["hash_ids"])]} for line in lines]
        assert found_without_limits(opened(write(tmp_path / "u", changed))) == expected


def test_ids_of_full_blocks_alone_leave_a_tail_that_is_never_found(tmp_path: Path) -> None:
    lines = prompts(16)
    short = [{**one, "hash_ids": one["hash_ids"][: one["input_length"] // 16]} for one in lines]
    requests = list(opened(write(tmp_path / "t", short)).requests())
    tails = [one.block_ids[-1] for one in requests if one.input_tokens % 16]
    assert len(set(tails)) == len(tails) > 0
    assert all(len(one.block_ids) == -(-one.input_tokens // 16) for one in requests)


def test_qwen_bailians_lines(tmp_path: Path) -> None:
    chats = [(7, -1), (8, -1), (9, 7), (3, 9)]
    lines = [
        {**line, "chat_id": chat, "parent_chat_id": parent, "turn": 1, "type": "text"}
        for line, (chat, parent) in zip(prompts(16), chats, strict=False)
    ]
    for number, line in enumerate(lines):
        line["timestamp"] = number * 1.5
    requests = list(open_trace(write(tmp_path / "t", lines)))
    assert [one.at_seconds for one in requests] == [0.0, 1.5, 3.0, 4.5]
    assert [one.session for one in requests] == [0, 1, 0, 0]
    assert {one.block_tokens for one in requests} == {16}


def test_conversations_and_senders_are_those_of_the_trace(tmp_path: Path) -> None:
    names = [("a", "x", 1), ("b", "x", 1), (None, "y", 1), ("a", "x", 2)]
    lines = [
        {**line, "session_id": session, "user": user, "tenant": org}
        for line, (session, user, org) in zip(prompts(16), names, strict=False)
    ]
    workload = opened(write(tmp_path / "t", lines))
    requests = list(workload.requests())
    assert [one.session for one in requests] == [0, 1, 2, 0]
    assert [(one.user, one.org) for one in requests] == [(0, 0), (0, 0), (1, 0), (2, 1)]
    assert workload.known_tenants
    tenancy = workload.tenancy(TenantSpec(), 1)
    assert (tenancy.orgs, tenancy.users) == (2, 3)
    placed = [tenancy.place(one).tenant for one in requests]
    assert [(one.user, one.org) for one in placed] == [(0, 0), (0, 0), (1, 0), (2, 1)]


def test_any_order_of_lines_is_one_order(tmp_path: Path) -> None:
    lines = prompts(512)
    later = [{**line, "timestamp": line["timestamp"] - 10**12} for line in lines]
    random.Random(1).shuffle(later)
    found = list(open_trace(write(tmp_path / "u", later)))
    assert found == list(open_trace(write(tmp_path / "t", lines)))


def test_a_line_that_comes_far_too_late_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ordering, "HELD_MAX", 5)
    lines = prompts(512)
    path = write(tmp_path / "t", [*lines, {**lines[0]}])
    with pytest.raises(Misuse, match=r"t, line 61: .*sort the file"):
        list(open_trace(path))


AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
BURST = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"


@pytest.mark.parametrize(
    "text",
    [
        f"{AZURE}2024-05-10 00:00:00+00:00,7,2\n2024-05-10 00:00:01.250000+00:00,9,3\n",
        f"{AZURE}2024-05-10 00:00:01.2500000,9,3\r\n{AZURE}2024-05-10 00:00:00,7,2\r\n",
        f"{BURST}5,GPT-4,7,2,9,Conversation log\n6.25,ChatGPT,9,3,12,API log\n",
        "arrived_at, num_prefill_tokens, num_decode_tokens\n0.5, 7, 2\n1.75, 9.0, 3\n",
    ],
)
def test_tables_of_arrivals(tmp_path: Path, text: str) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    first, second = open_trace(path)
    assert (first.at_seconds, first.input_tokens, first.output_tokens) == (0.0, 7, 2)
    assert (second.at_seconds, second.input_tokens, second.output_tokens) == (1.25, 9, 3)


@pytest.mark.parametrize("pack", [bz2.compress, lzma.compress])
def test_other_packings(tmp_path: Path, pack: Any) -> None:
    plain = write(tmp_path / "t", prompts(512))
    (tmp_path / "packed").write_bytes(pack(plain.read_bytes()))
    assert list(open_trace(tmp_path / "packed")) == list(open_trace(plain))


FIRST = prompts(512)[0]


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"\x28\xb5\x2f\xfdxxxx", "packed with zstd"),
        (b"PK\x03\x04xxxx", "a zip file"),
        (b"PAR1xxxx", "a Parquet file"),
        ("{}".encode("utf-16"), "write it as UTF-8"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        (b'[{"hash_ids": [1]}]', "jq -c"),
        (b'{\n  "hash_ids": [1]\n}', "line 1: is no whole JSON object"),
        (b'{"hash_ids":' + b"[" * 100_000 + b"\n", "line 1: is no whole JSON object"),
        (b"a;b;c\n1;2;3\n", "line 1: begins no known trace"),
        ({**FIRST, "hash_ids": []}, "line 1: has 0 hash_ids"),
        ({**FIRST, "hash_ids": [*range(99)]}, "line 1: has 99 hash_ids .* write .block_size."),
        ({**FIRST, "hash_ids": None}, "line 1: has no 'hash_ids' that is a list"),
        ({**FIRST, "timestamp": 10**400}, "line 1: has a 'timestamp' out of all bounds"),
        ({**FIRST, "timestamp": float("nan")}, "line 1: has a 'timestamp' out of all bounds"),
        ({**FIRST, "timestamp": "noon"}, "line 1: has no 'timestamp' that is a number"),
        ({**FIRST, "block_size": "big"}, "line 1: has no 'block_size' that is a whole number"),
        ({**FIRST, "output_length": 10**30}, "line 1: has no 'output_length'"),
        ({**FIRST, "session": [1]}, "line 1: has a 'session' that is no text"),
        ((AZURE + "2023-11-16 18:17:03,words,1\n").encode(), "line 2: has no 'ContextTokens'"),
        ((AZURE + "2023-11-16 18:17:03,1\n").encode(), "line 2: has another number of cells"),
        ((AZURE + "noon,1,1\n").encode(), "line 2: has a time that is no number"),
        (AZURE.encode(), "has no requests"),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path: Path, data: object, complaint: str) -> None:
    path = tmp_path / "t"
    path.write_bytes(data if isinstance(data, bytes) else json.dumps(data).encode() + b"\n")
    with pytest.raises(Misuse, match=complaint) as raised:
        opened(path)
    assert str(path) in str(raised.value)
    assert "words" not in str(raised.value)


@pytest.mark.parametrize("name", ["user", "session", "block_size"])
def test_a_trace_names_things_on_every_line_or_on_none(tmp_path: Path, name: str) -> None:
    with pytest.raises(Misuse, match="t, line 2: "):
        opened(write(tmp_path / "t", [FIRST, {**FIRST, name: 5}]))


def test_long_prompts_are_counted_in_larger_blocks(tmp_path: Path) -> None:
    line = {"timestamp": 0, "output_length": 1, "input_length": 16 * 300}
    workload = opened(write(tmp_path / "t", [{**line, "hash_ids": [*range(300)]}]))
    assert workload.block_tokens == 64
    (request,) = workload.requests()
    assert request == TracedRequest(0.0, 4800, 1, 64, [*range(3, 300, 4)])
