"""What a body may not name at a provider."""

from __future__ import annotations

from typing import Any

import pytest

from scopekv.errors import Misuse
from scopekv.gateway.upstreams import references


def nested(inner: Any, depth: int) -> Any:
    for _ in range(depth):
        inner = [{"content": inner}]
    return inner


@pytest.mark.parametrize("depth", [1, 5_000])
def test_a_file_is_found_however_deep_it_lies(depth: int) -> None:
    references.check({"messages": nested("words", depth)})
    with pytest.raises(Misuse, match="file_id"):
        references.check({"messages": nested([{"file_id": "f"}], depth)})


@pytest.mark.parametrize(
    "body",
    [
        {"diagnostics": {"previous_message_id": "msg_1"}},
        {"container": "c"},
        {"input": [{"id": "msg_1"}]},
        {"input": ["x"]},
        {"tools": {"type": "code_interpreter"}},
        {"thread": {"type": "continue", "previous_message_id": "msg_1"}},
        {"thread": {"type": "create"}},
        {"messages": [{"content": [{"type": "image", "source": {"type": "file", "name": "f"}}]}]},
        {"prompt_cache_options": {"mode": "explicit", "comparison_response_id": "resp_1"}},
        {"audio": {"format": "mp3", "voice": {"id": "voice_1"}}},
        {"background_options": {"continuation_id": "c"}},
        {"made_up_next_year": [{"deep": [{"snapshot_ids": ["s"]}]}]},
        {"made_up_id": "m"},
    ],
)
def test_what_names_something_there_is_refused(body: dict[str, Any]) -> None:
    with pytest.raises(Misuse):
        references.check(body)


def test_ids_that_are_the_clients_own_words_pass() -> None:
    schema = {"type": "object", "properties": {"user_id": {"type": "string"}, "id": {}}}
    references.check(
        {
            "messages": [{"role": "tool", "tool_call_id": "c", "content": "x"}],
            "tools": [{"type": "function", "name": "f", "parameters": schema}],
            "response_format": {"type": "json_schema", "json_schema": {"schema": schema}},
            "text": {"format": {"schema": schema}},
            "output_config": {"format": {"schema": schema}},
            "metadata": {"user_id": "u"},
            "session_id": "stripped, as everywhere",
            "prompt_cache_options": {"mode": "explicit", "comparison_response_id": None},
            "logit_bias": {"50256": -100},
            "tool_choice": {"type": "function", "name": "f"},
            "thinking": {"type": "enabled", "budget_tokens": 1024},
        }
    )
