"""Traces over OpenTelemetry, sent by OTLP over HTTP (extra `otel`).

A caller's `traceparent` is continued, so that its trace and ours are one, and the engine gets our
span as its parent. Its sampled flag can only narrow: which requests are recorded is decided here,
by trace id, so a caller cannot make this gateway record more than `sample_share`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scopekv import __version__
from scopekv.errors import ConfigError
from scopekv.ports.tracing import Header, NoTracer, Tracer, Value

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

EXPORT_SECONDS_MAX = 5.0
_PARENT, _STATE = b"traceparent", b"tracestate"


@dataclass(frozen=True, slots=True)
class TracingSettings:
    """`endpoint`: where spans go, as http://HOST:4318/v1/traces; empty: nowhere, none are made.

    `sample_share`: the part of requests that is recorded, from 0 to 1.
    """

    endpoint: str = ""
    service_name: str = "scopekv-gateway"
    sample_share: float = 1.0

    def __post_init__(self) -> None:
        if self.endpoint and not self.endpoint.startswith(("http://", "https://")):
            raise ConfigError(
                f"[tracing] endpoint is {self.endpoint[:120]!r}; it takes a URL such as "
                "http://HOST:4318/v1/traces"
            )
        if not 0 <= self.sample_share <= 1:
            raise ConfigError(f"[tracing] sample_share is {self.sample_share}; it takes 0 to 1")


def open_tracer(settings: TracingSettings) -> Tracer:
    """What traces by these settings. Raises `ConfigError` where the packages are missing."""
    if not settings.endpoint:
        return NoTracer()
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise ConfigError(
            f"[tracing] needs a package that is missing ({error.name}): "
            "pip install 'scopekv[otel]', or take [tracing] out"
        ) from error
    exporter = OTLPSpanExporter(endpoint=settings.endpoint, timeout=EXPORT_SECONDS_MAX)
    provider = make_provider(settings)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return OtelTracer(provider)


def make_provider(settings: TracingSettings) -> TracerProvider:
    """OpenTelemetry's provider with our resource and sampling, and nowhere to send to yet."""
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

    share = TraceIdRatioBased(settings.sample_share)
    resource = Resource.create(
        {"service.name": settings.service_name, "service.version": __version__}
    )
    sampler = ParentBased(root=share, remote_parent_sampled=share)
    return TracerProvider(sampler=sampler, resource=resource, shutdown_on_exit=False)


class OtelTracer:
    """`ports.Tracer` over a provider, which it shuts down when it is closed."""

    def __init__(self, provider: TracerProvider) -> None:
        from opentelemetry.trace import SpanKind
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._provider = provider
        self._tracer = provider.get_tracer("scopekv.gateway", __version__)
        self._propagator = TraceContextTextMapPropagator()
        self._kind = SpanKind.SERVER

    def begin(self, name: str, headers: Sequence[Header]) -> OtelTrace:
        carrier = {
            key.decode(): value.decode("latin-1")
            for key, value in headers
            if key in (_PARENT, _STATE)
        }
        context = self._propagator.extract(carrier) if carrier else None
        span = self._tracer.start_span(name, context=context, kind=self._kind)
        return OtelTrace(span, self._propagator)

    def close(self) -> None:
        self._provider.shutdown()


class OtelTrace:
    """`ports.Trace` over one span."""

    __slots__ = ("_propagator", "_span")

    def __init__(self, span: Span, propagator: TraceContextTextMapPropagator) -> None:
        self._span, self._propagator = span, propagator

    def named(self, name: str) -> None:
        self._span.update_name(name)

    def told(self, attributes: Mapping[str, Value]) -> None:
        self._span.set_attributes(attributes)

    def failed(self, kind: str) -> None:
        from opentelemetry.trace import Status, StatusCode

        self._span.set_attribute("error.type", kind)
        self._span.set_status(Status(StatusCode.ERROR))

    def onward(self, headers: list[Header]) -> list[Header]:
        from opentelemetry.trace import set_span_in_context

        carrier: dict[str, str] = {}
        self._propagator.inject(carrier, context=set_span_in_context(self._span))
        own = [(name.encode(), value.encode("latin-1")) for name, value in carrier.items()]
        return [*(h for h in headers if h[0] not in (_PARENT, _STATE)), *own]

    def end(self) -> None:
        self._span.end()
