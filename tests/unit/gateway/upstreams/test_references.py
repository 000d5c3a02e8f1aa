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
    ],
)
def test_what_names_something_there_is_refused(body: dict[str, Any]) -> None:
    with pytest.raises(Misuse):
        references.check(body)
