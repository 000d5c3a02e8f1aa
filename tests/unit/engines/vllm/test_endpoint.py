"""The plugin's HTTP face: what it refuses before anything reaches the engine."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from fastapi import HTTPException

from scopekv.core.backlogs import HEADER
from scopekv.engines.vllm import endpoint
from scopekv.engines.vllm.endpoint import ScopeKVEndpoint, guard_front_end
from scopekv.errors import ConfigError

SCOPE = "0a" * 16


def test_a_purge_takes_whole_pairs_alone() -> None:
    good = [[SCOPE, 0], [SCOPE, 2**63 - 2]]
    assert endpoint._pairs(good) == good


@pytest.mark.parametrize(
    "pair",
    [
        [SCOPE, -1], [SCOPE, 2**63 - 1], [SCOPE, "0"], [SCOPE, True], [SCOPE, 0.0], [SCOPE],
        [SCOPE, 0, 0], [SCOPE.upper(), 0], [SCOPE[1:], 0], [SCOPE + "\n", 0], [0, 0], SCOPE, None,
    ],
)  # fmt: skip
def test_a_pair_that_is_none_is_refused(pair: Any) -> None:
    with pytest.raises(HTTPException) as refusal:
        endpoint._pairs([[SCOPE, 0], pair])
    assert refusal.value.status_code == 400


def test_a_purge_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "LINKS_MAX", 2)
    endpoint._pairs([[SCOPE, 0]] * 2)
    with pytest.raises(HTTPException):
        endpoint._pairs([[SCOPE, 0]] * 3)


@pytest.mark.parametrize("ids", [[1, -1], [1, "2"], [True], [1.0], [1] * 5])
def test_token_ids_are_whole_numbers_and_bounded(ids: list[Any]) -> None:
    assert endpoint._ids([0, 1, 2, 3], 4) == [0, 1, 2, 3]
    with pytest.raises(HTTPException):
        endpoint._ids(ids, 4)


@pytest.mark.parametrize(
    "body",
    [
        {"media": ["directory"]}, {"media": ["engine"], "read": "valkey"},
        {"media": ["engine"], "read": [1]}, {"media": ["engine"], "seconds": 0},
        {"media": ["engine"], "seconds": 601}, {"media": ["engine"], "seconds": float("nan")},
        {"media": ["engine"], "seconds": True},
    ],
)  # fmt: skip
def test_what_cannot_be_forgotten_is_refused(body: dict[str, Any]) -> None:
    with pytest.raises(HTTPException):
        endpoint._forgotten(body)
    assert endpoint._forgotten({"media": ["engine", "host"], "read": None, "seconds": 600}) == (
        ["engine", "host"], None, 600.0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("change", "heard"),
    [
        ({}, True),
        ({"type": "websocket"}, False),
        ({"method": "OPTIONS"}, False),
        ({"path": "/health"}, False),
        ({"path": "/base/v1/models", "root_path": "/base"}, True),
        ({"headers": []}, False),
    ],
)
def test_a_gateway_is_heard_only_where_its_key_was_checked(
    change: dict[str, Any], heard: bool
) -> None:
    scope = {"type": "http", "method": "POST", "path": "/v1/models", "headers": [(HEADER, b"x")]}
    assert (endpoint._load_header(scope | change) == b"x") is heard


def guarded(monkeypatch: pytest.MonkeyPatch, *, refuse: bool) -> None:
    guard = SimpleNamespace(settings=SimpleNamespace(refuse=refuse))
    monkeypatch.setattr(endpoint, "installed_guard", lambda: guard)


async def test_it_does_not_start_where_vllm_logs_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    guarded(monkeypatch, refuse=False)
    state, client = SimpleNamespace(), SimpleNamespace()
    logging: Any = SimpleNamespace(enable_log_requests=True)
    silent: Any = SimpleNamespace(enable_log_requests=False)
    with pytest.raises(ConfigError, match="enable-log-requests"):
        await ScopeKVEndpoint().init_state(client, state, logging)
    assert not hasattr(state, "scopekv_client")
    await ScopeKVEndpoint().init_state(client, state, silent)
    assert state.scopekv_client is client


@pytest.mark.parametrize(
    ("extra", "passes"),
    [
        (None, False),
        ({}, False),
        ({"kv_transfer_params": None}, False),
        ({"kv_transfer_params": {"scopekv": ""}}, False),
        ({"kv_transfer_params": {"scopekv": "a ticket"}}, True),
    ],
)
def test_where_it_is_told_to_a_request_without_a_ticket_is_refused(
    extra: dict[str, Any] | None, passes: bool
) -> None:
    seen: list[str] = []
    processor = SimpleNamespace(process_inputs=lambda request_id, *_: seen.append(request_id))
    guard_front_end(SimpleNamespace(input_processor=processor))
    params = SimpleNamespace(extra_args=extra)
    if not passes:
        with pytest.raises(ValueError, match="ticket only"):
            processor.process_inputs("r1", "prompt", params)
    else:
        processor.process_inputs("r1", "prompt", params)
    assert seen == (["r1"] if passes else [])
