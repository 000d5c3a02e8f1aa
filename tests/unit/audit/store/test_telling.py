"""Logs, metrics and events that tell are found out, and clean ones are not."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from scopekv.audit.results import Verdict
from scopekv.audit.store.events import events
from scopekv.audit.store.needles import Words, of_token_ids, of_words
from scopekv.audit.store.telling import Hidden, logs, told_by
from scopekv.errors import ConfigError

IDS = [1234, 8051, 977, 4410]
HIDDEN = Hidden(
    [*of_words("text of a prompt", ["zephyrquillon"]), *of_token_ids("token ids", IDS)],
    Words(("acme", "acme-7", "alice")),
)
CLEAN = b"2026-01-01 INFO scopekv.gateway: purge of 3 scopes done\n"


@pytest.mark.parametrize(
    "line",
    [
        b"DEBUG prompt: zephyrquillon and so on",
        b"DEBUG [1234, 8051, 977, 4410, 5]",
        b"INFO AWwAAADOcwAAABBzY29wZWt2L3RpY2tldC8xbAAA",
        b"INFO key sk-scopekv-0123456789abcdef0123",
        b"INFO acme-7 asked again",
    ],
)
async def test_a_log_that_tells_is_found_out(line: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    filler = CLEAN * 19_000  # so that the line stands across two pieces
    path.write_bytes(filler[: (1 << 20) - 20] + b"\n" + line + b"\n" + CLEAN)
    assert (await logs([path], HIDDEN)).verdict is Verdict.BROKEN


async def test_a_word_that_is_a_name_here_too_is_no_leak(tmp_path: Path) -> None:
    """An organisation named ops, and an engine that logs of CPU ops."""
    path = tmp_path / "a.log"
    path.write_bytes(CLEAN + b"multi-threaded CPU ops degrade performance\n")
    check = await logs([path], Hidden(HIDDEN.needles, Words(("ops",))))
    assert check.verdict is Verdict.HELD
    assert "words that are names here" in check.summary
    assert check.evidence["words_like_names"] == 1


async def test_a_clean_log_holds_an_empty_one_is_blind_and_none_is_not_tested(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(CLEAN)
    assert (await logs([path], HIDDEN)).verdict is Verdict.HELD
    path.write_bytes(b"")
    assert (await logs([path], HIDDEN)).verdict is Verdict.BLIND
    assert (await logs([], HIDDEN)).verdict is Verdict.NOT_TESTED
    with pytest.raises(ConfigError):
        await logs([tmp_path / "none"], HIDDEN)


@pytest.mark.parametrize(
    ("label", "value"),
    [("org", "x"), ("instance", "acme"), ("scope", "0f" * 16), ("path", "zephyrquillon")],
)
def test_a_label_that_tells_is_found_out(label: str, value: str) -> None:
    clean = 'scopekv_cached_tokens_total{scope="org"} 5.0\nvllm:x{model_name="m",le="+Inf"} 1\n'
    assert told_by(clean, HIDDEN) == []
    assert told_by(f'{clean}a_total{{{label}="{value}"}} 1\n', HIDDEN)


def event_of(**fields: object) -> bytes:
    event = {"type": "BlockStored", "extra_keys": [["ab" * 32]], "token_ids": [], **fields}
    return msgspec.msgpack.encode([1.0, [event], 0])


def test_events_may_hold_tags_and_ids_and_nothing_else(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    bus = [f"ipc://{tmp_path}/a.sock"]
    assert events(bus, [event_of()], HIDDEN, IDS).verdict is Verdict.HELD
    told = events(bus, [event_of(token_ids=[1, *IDS, 2])], HIDDEN, IDS)
    assert told.verdict is Verdict.HELD
    assert told.evidence["batches_with_our_ids"] == 1
    assert events(bus, [], HIDDEN, IDS).verdict is Verdict.BLIND
    for wrong in ({"lora_name": "acme"}, {"extra_keys": ["x" * 70]}, {"note": "zephyrquillon"}):
        assert events(bus, [event_of(**wrong)], HIDDEN, IDS).verdict is Verdict.BROKEN


def test_a_bus_that_others_reach_is_broken() -> None:
    assert events(["tcp://10.0.0.1:5557"], [event_of()], HIDDEN, IDS).verdict is Verdict.BROKEN
