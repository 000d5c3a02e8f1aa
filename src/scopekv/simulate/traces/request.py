"""One request of a recorded workload, without its text."""

from __future__ import annotations

from collections.abc import Sequence

from scopekv.core.values import light_value
from scopekv.errors import Misuse

UNKNOWN = -1


@light_value()
class TracedRequest:
    """One request.

    `at_seconds`: arrival, from the start of the trace; never decreases within a trace.
    `block_ids`: one per `block_tokens` tokens of the prompt; the last may be a partial block.
    Chained: two equal ids mean that all before them is equal too, so an id names a whole prefix.
    `session`: conversation, numbered from 0; UNKNOWN where the trace does not say.
    `tools_tokens`, `system_tokens`: the leading parts that are tool definitions and system prompt.
    `user`, `org`: who sent it, numbered from 0; UNKNOWN where the trace does not say.
    """

    at_seconds: float
    input_tokens: int
    output_tokens: int
    block_tokens: int
    block_ids: Sequence[int]
    session: int = UNKNOWN
    tools_tokens: int = 0
    system_tokens: int = 0
    user: int = UNKNOWN
    org: int = UNKNOWN

    def __post_init__(self) -> None:
        if self.input_tokens < 1 or self.output_tokens < 0 or self.block_tokens < 1:
            raise Misuse("a request has 1 token or more, and blocks of 1 token or more")
        if len(self.block_ids) * self.block_tokens < self.input_tokens:
            raise Misuse("a request's block ids must cover all its input tokens")
