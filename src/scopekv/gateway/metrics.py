"""Counters of one gateway. Labels are closed sets: never a caller, prompt, key or name (L10)."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from scopekv.core.reasons import RouteReason

_PURGE_SECONDS = (0.05, 0.25, 1, 5, 15, 60, 300, 3600)
_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.25, 1, 5, 30)


class Metrics:
    """Each figure under its own name (L12)."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = self._counter(
            "requests", "Answers by endpoint and status.", "endpoint", "status"
        )
        self._input = self._counter("input_tokens", "Prompt tokens of answered requests.")
        self._cached = self._counter("cached_tokens", "Prompt tokens read from the cache.", "scope")
        self._hits = self._counter(
            "request_hits", "Answered requests with at least one cached token."
        )
        self._answered = self._counter(
            "requests_counted", "Answered requests whose usage was read."
        )
        self._engine_errors = self._counter("engine_errors", "Failed calls to engines.", "kind")
        self._probes = self._counter("probe_alarms", "Callers that probed others' prompts.", "kind")
        routes = self._counter("routes", "Requests placed, by reason.", "reason")
        self._routes = {reason: routes.labels(reason.value) for reason in RouteReason}
        self.own_seconds = Histogram(
            "scopekv_gateway_own_seconds",
            "Time from a request's last byte to its first byte to the engine.",
            buckets=_SECONDS,
            registry=self._registry,
        )

        self._open_receipts = Gauge(
            "scopekv_receipts",
            "Receipts of revocations that are not done, by state.",
            ["state"],
            registry=self._registry,
        )
        self._purge_seconds = Histogram(
            "scopekv_purge_seconds",
            "Time from a revocation to its receipt being done on every instance and tier.",
            buckets=_PURGE_SECONDS,
            registry=self._registry,
        )

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"scopekv_{name}", text, labels, registry=self._registry)

    def answered(self, endpoint: str, status: int) -> None:
        self._requests.labels(endpoint, str(status)).inc()

    def engine_error(self, kind: str) -> None:
        self._engine_errors.labels(kind).inc()

    def probed(self, kind: str) -> None:
        """Count one alarm; `kind` is a `ProbeKind`."""
        self._probes.labels(kind).inc()

    def routed(self, reason: RouteReason) -> None:
        """Count one choice of an instance. A request that is tried again is counted again."""
        self._routes[reason].inc()

    def counted(self, input_tokens: int, cached_by_scope: Mapping[str, int]) -> None:
        """Count one answer's prompt: token hit rate is cached_tokens over input_tokens."""
        self._answered.inc()
        self._input.inc(input_tokens)
        for scope, tokens in cached_by_scope.items():
            self._cached.labels(scope).inc(tokens)
        if any(cached_by_scope.values()):
            self._hits.inc()

    def open_receipts(self, state: str, count: int) -> None:
        self._open_receipts.labels(state).set(count)

    def purged(self, seconds: float) -> None:
        """Count one receipt that was done after so long."""
        self._purge_seconds.observe(seconds)

    def text(self) -> bytes:
        return generate_latest(self._registry)
