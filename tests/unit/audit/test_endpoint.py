"""What a stranger's client reads of an answer, whole or streamed."""

from __future__ import annotations

import pytest

from scopekv.audit.endpoint import COMPLETIONS, Endpoint
from scopekv.simulate.stage import Stage, text_of

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_usage_is_read_of_whole_answers_and_of_streams(stage: Stage) -> None:
    key = stage.deployment.account("endpoint-org", "endpoint-user")
    body = {"model": stage.model.name, "prompt": text_of("endpoint", 60), "max_tokens": 2}
    stream = {"stream": True, "stream_options": {"include_usage": True}}
    async with Endpoint(stage.deployment.url + "/v1") as endpoint:
        assert await endpoint.models(key) == [stage.model.name]
        whole = await endpoint.call("POST", COMPLETIONS, body, key=key)
        streamed = await endpoint.call("POST", COMPLETIONS, body | stream, key=key)
    assert whole.ok
    assert streamed.ok
    assert whole.code == ""
    assert whole.input_tokens == streamed.input_tokens
    assert whole.cached_tokens == 0
    assert streamed.cached_tokens
    assert 0 < streamed.ttft_seconds <= streamed.seconds


async def test_a_refusal_is_a_reply_with_its_code(stage: Stage) -> None:
    async with Endpoint(stage.deployment.url) as endpoint:
        reply = await endpoint.call("POST", COMPLETIONS, {"model": "m"}, key="sk-no-such-key")
    assert (reply.status, reply.cached_tokens) == (401, None)
    assert reply.code
