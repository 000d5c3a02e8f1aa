"""A request's span: the conventions' names, its place between caller and engine, nobody's words."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from scopekv.adapters.tracing import OtelTracer, TracingSettings, make_provider, open_tracer
from scopekv.errors import ConfigError
from scopekv.gateway.settings_file import read_settings
from scopekv.ports.tracing import NO_TRACE, NoTracer
from scopekv.simulate.model import SimulatedModel
from scopekv.simulate.stage import Stage, text_of

pytest.importorskip("opentelemetry.sdk", reason="needs the otel extra")

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import (
    InMemorySpanExporter,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")
TRACE, CALLER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = [(b"traceparent", f"00-{TRACE}-{CALLER}-01".encode())]
EXPORTER = InMemorySpanExporter()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def traced(
    tmp_path_factory: pytest.TempPathFactory, model: SimulatedModel
) -> AsyncIterator[Stage]:
    stage = Stage(tmp_path_factory.mktemp("traced"), model)
    provider = make_provider(TracingSettings())
    provider.add_span_processor(SimpleSpanProcessor(EXPORTER))
    stage.deployment.world = replace(stage.deployment.world, tracer=OtelTracer(provider))
    async with stage:
        yield stage


@pytest.fixture(scope="module")
def alice(traced: Stage) -> str:
    return traced.deployment.account("acme", "alice")


def last() -> ReadableSpan:
    (span,) = EXPORTER.get_finished_spans()
    EXPORTER.clear()
    return span


async def test_a_span_has_the_conventions_attributes(traced: Stage, alice: str) -> None:
    prompt = text_of("traced", 120)
    await traced.client.chat(alice, prompt)
    EXPORTER.clear()
    answer = await traced.client.chat(alice, prompt)
    span, usage = last(), answer.json["usage"]
    told = dict(span.attributes or {})
    assert span.name == f"chat {traced.model.name}"
    assert span.kind.name == "SERVER"
    assert told["gen_ai.operation.name"] == "chat"
    assert told["gen_ai.request.model"] == traced.model.name
    assert told["gen_ai.usage.input_tokens"] == usage["prompt_tokens"]
    assert told["gen_ai.usage.output_tokens"] == usage["completion_tokens"]
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    assert told["gen_ai.usage.cache_read.input_tokens"] == cached > 0
    assert told["scopekv.route.reason"] == "only_candidate"
    assert told["scopekv.instance"] == "engine-0"
    assert told["scopekv.isolation"] == "scoped"
    assert span.resource.attributes["service.name"] == "scopekv-gateway"
    assert "error.type" not in told


async def test_it_names_no_caller_and_holds_no_word_of_the_prompt(
    traced: Stage, alice: str
) -> None:
    prompt = text_of("secret", 8)
    await traced.client.chat(alice, prompt, user="evangeline", stream=True)
    text = last().to_json()
    assert '"gen_ai.request.stream": true' in text
    assert {name.split(".")[0] for name in json.loads(text)["attributes"]} == {"gen_ai", "scopekv"}
    words = [prompt, *re.findall(r"[a-z]{5,}", prompt), "acme", "alice", "evangeline", alice]
    assert [word for word in words if f'"{word}' in text or f" {word} " in text] == []


async def test_the_callers_trace_goes_on_to_the_engine(traced: Stage, alice: str) -> None:
    await traced.client.complete(alice, "hello", headers=PARENT)
    span = last()
    assert span.context is not None
    assert span.parent is not None
    assert f"{span.context.trace_id:032x}" == TRACE
    assert f"{span.parent.span_id:016x}" == CALLER
    sent = [value for name, value in traced.engine.seen.calls[-1].headers if name == b"traceparent"]
    assert sent == [f"00-{TRACE}-{span.context.span_id:016x}-01".encode()]
    assert span.name == f"text_completion {traced.model.name}"


async def test_an_error_is_told_by_its_kind_alone(traced: Stage, alice: str) -> None:
    await traced.client.chat("sk-scopekv-" + "x" * 43, "hello")
    span = last()
    assert (span.attributes or {})["error.type"] == "Unauthenticated"
    assert span.status.description is None
    assert not span.events
    await traced.client.chat(alice, "hello", model="a model named by a client")
    assert "named by a client" not in last().to_json()


async def test_a_callers_flag_records_no_more_than_the_share() -> None:
    exporter = InMemorySpanExporter()
    provider = make_provider(TracingSettings(sample_share=0.0))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = OtelTracer(provider)
    trace = tracer.begin("chat", PARENT)
    assert trace.onward([])[0][1].endswith(b"-00")
    trace.end()
    tracer.close()
    assert exporter.get_finished_spans() == ()


async def test_off_is_nothing_and_settings_are_checked(tmp_path: Path) -> None:
    tracer = open_tracer(TracingSettings())
    assert isinstance(tracer, NoTracer)
    assert tracer.begin("chat", PARENT) is NO_TRACE
    assert NO_TRACE.onward(PARENT) is PARENT
    path = tmp_path / "scopekv.toml"
    engine = '[[instances]]\nname = "e"\nurl = "http://h:1"\n'
    path.write_text(f'{engine}[tracing]\nendpoint = "http://otel:4318/v1/traces"\n')
    assert read_settings(path).tracing.endpoint == "http://otel:4318/v1/traces"
    for wrong in ('endpoint = "otel:4318"', "sample_share = 2.0", "sample_share = nan"):
        path.write_text(f"{engine}[tracing]\n{wrong}\n")
        with pytest.raises(ConfigError, match=r"\[tracing\]"):
            read_settings(path)
