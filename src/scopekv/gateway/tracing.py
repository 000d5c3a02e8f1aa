"""What a request's span tells, by the names of OpenTelemetry's conventions for generative AI.

    chat MODEL | text_completion MODEL
      gen_ai.operation.name, gen_ai.provider.name, gen_ai.request.model, gen_ai.request.stream
      gen_ai.usage.input_tokens, gen_ai.usage.output_tokens, gen_ai.usage.cache_read.input_tokens
      scopekv.request_id, scopekv.instance, scopekv.isolation, scopekv.route.reason
      scopekv.waited_seconds                            error.type: where it failed

Names as of semantic conventions 1.44, where these are in development. Not among them, though the
conventions have it: the prompt, the answer, the user.
"""

from __future__ import annotations

from scopekv.gateway.reading import Job
from scopekv.gateway.routing import Route
from scopekv.gateway.usage import Usage
from scopekv.ports.tracing import NO_TRACE, Value

PROVIDER = "vllm"
_COMPLETIONS = "/v1/completions"


def operation(path: str) -> str:
    """The convention's name of what this API does."""
    return "text_completion" if path == _COMPLETIONS else "chat"


def tell_route(job: Job, route: Route) -> None:
    """Tell what is asked of which instance, and why of that one.

    Not before there is a route: until then `model` is whatever a client wrote.
    """
    if job.trace is NO_TRACE:
        return
    name, model = operation(job.api.path), job.body["model"]
    job.trace.named(f"{name} {model}")
    job.trace.told(
        {
            "gen_ai.operation.name": name,
            "gen_ai.provider.name": PROVIDER,
            "gen_ai.request.model": model,
            "gen_ai.request.stream": job.body.get("stream") is True,
            "scopekv.request_id": job.request_id,
            "scopekv.instance": route.instance.address.name,
            "scopekv.isolation": route.instance.isolation.value,
            "scopekv.route.reason": route.choice.reason.value,
            "scopekv.waited_seconds": job.waited_seconds,
        }
    )


def tell_upstream(job: Job, name: str, provider: str) -> None:
    """Tell which provider is asked, and for which model of those that are set."""
    doing, model = operation(job.api.path), job.body["model"]
    job.trace.named(f"{doing} {model}")
    job.trace.told(
        {
            "gen_ai.operation.name": doing,
            "gen_ai.provider.name": provider,
            "gen_ai.request.model": model,
            "gen_ai.request.stream": job.body.get("stream") is True,
            "scopekv.request_id": job.request_id,
            "scopekv.instance": name,
        }
    )


def tell_usage(job: Job, usage: Usage | None) -> None:
    """Tell what the engine counted, as far as it counts."""
    if usage is None or job.trace is NO_TRACE:
        return
    counts: dict[str, Value] = {"gen_ai.usage.input_tokens": usage.prompt_tokens}
    if usage.completion_tokens is not None:
        counts["gen_ai.usage.output_tokens"] = usage.completion_tokens
    if usage.cached is not None:
        counts["gen_ai.usage.cache_read.input_tokens"] = usage.cached
    job.trace.told(counts)
