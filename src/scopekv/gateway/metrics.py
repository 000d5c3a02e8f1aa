"""Counters of one gateway. Labels are closed sets: never a caller, prompt, key or name (L10).

The one exception is switched on by the operator: `[metrics] org_label = true` adds two counters
with a label `org`. Names of vLLM's own start with `vllm:`, those of the plugin with `scopekv:`.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter as Count
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import HistogramMetricFamily
from prometheus_client.utils import floatToGoString

from scopekv.core.identity import IdentityReason
from scopekv.core.reasons import RouteReason
from scopekv.core.scopes import ScopeKind

_PURGE_SECONDS = (0.05, 0.25, 1, 5, 15, 60, 300, 3600)
_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.25, 1, 5, 30)
_TTFT_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


@dataclass(frozen=True, slots=True)
class Described:
    """One metric as the reference shows it. `kind`: counter, gauge or histogram."""

    name: str
    kind: str
    text: str
    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class InstanceNow:
    """One instance at the moment of a scrape. `queue_seconds`: until a new prompt would begin."""

    name: str
    state: str
    isolation: str
    in_flight: int
    queue_seconds: float


class Times:
    """A histogram of seconds that every request adds to. On the event loop alone: no locks."""

    def __init__(self, name: str, text: str, bounds: Sequence[float]) -> None:
        self._name, self._text, self._bounds = name, text, (*bounds, math.inf)
        self._counts, self._sum = [0] * len(self._bounds), 0.0

    def observe(self, seconds: float) -> None:
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self._sum += seconds

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """What a scrape sees: how many took so long at most, for each bound."""
        rows = zip(map(floatToGoString, self._bounds), accumulate(self._counts), strict=True)
        yield HistogramMetricFamily(self._name, self._text, list(rows), self._sum)


class Metrics:
    """Each figure under its own name (L12)."""

    def __init__(self, *, org_label: bool = False) -> None:
        self._registry = CollectorRegistry()
        self.described: list[Described] = []
        self._requests = self._counter(
            "requests", "Answers by endpoint and status.", "endpoint", "status"
        )
        self._pending: dict[Counter, int] = {}
        self._answers: dict[tuple[str, int], Counter] = {}
        self._input = self._counter("input_tokens", "Prompt tokens of answered requests.")
        self._cached = self._counter("cached_tokens", "Prompt tokens read from the cache.", "scope")
        self._cached_of: dict[ScopeKind, Counter] = {}
        self._hits = self._counter(
            "request_hits", "Answered requests with at least one cached token."
        )
        self._answered = self._counter(
            "requests_counted", "Answered requests whose usage was read."
        )
        self._by_org: tuple[Counter, Counter] | None = None
        if org_label:
            self._by_org = (
                self._counter("org_input_tokens", "As input_tokens, by organisation.", "org"),
                self._counter("org_cached_tokens", "As cached_tokens, by organisation.", "org"),
            )
        self._engine_errors = self._counter("engine_errors", "Failed calls to engines.", "kind")
        self._upstream_input = self._counter(
            "upstream_input_tokens", "Input tokens as providers count them.", "upstream"
        )
        self._upstream_cached = self._counter(
            "upstream_cached_tokens",
            "Of those, tokens that they read from their cache.",
            "upstream",
        )
        self._tokens_refused = self._counter(
            "bearer_tokens_refused", "Bearer tokens refused, by reason.", "reason"
        )
        self._probes = self._counter("probe_alarms", "Callers that probed others' prompts.", "kind")
        routes = self._counter("routes", "Requests placed, by reason.", "reason")
        self._routes = {reason: routes.labels(reason.value) for reason in RouteReason}
        self._add_times()
        self._add_gauges()

    def _add_times(self) -> None:
        self.own_seconds = self._times(
            "gateway_own_seconds",
            "Time from a request's last byte to its first byte to the engine, waiting left out.",
            _SECONDS,
        )
        self.ttft_seconds = self._times(
            "ttft_seconds",
            "Time from a streamed request's last byte to its answer's first one, waiting included.",
            _TTFT_SECONDS,
        )
        self.waited_seconds = self._times(
            "waited_seconds", "Time that requests waited for a place at an engine.", _TTFT_SECONDS
        )
        text = "Time from a revocation to its receipt being done on every instance and tier."
        name = self._describe("purge_seconds", "histogram", text, ())
        self._purge_seconds = Histogram(name, text, buckets=_PURGE_SECONDS, registry=self._registry)

    def _add_gauges(self) -> None:
        self._open_receipts = self._gauge(
            "receipts", "Receipts of revocations that are not done, by state.", "state"
        )
        self._waiting = self._gauge(
            "requests_waiting",
            "Requests that wait for a place at engines, upstream, explain, count_tokens, admin, "
            "console or cached_contents.",
            "at",
            "upstream",
        )
        self._running = self._gauge("requests_running", "Requests that have a place at an engine.")
        self._instances = self._gauge(
            "instances",
            "Engines by state and by how they keep callers apart.",
            "state",
            "isolation",
        )
        self._in_flight = self._gauge(
            "instance_requests", "Requests of this gateway at an engine.", "engine"
        )
        self._queue = self._gauge(
            "instance_queue_seconds",
            "Expected time until an engine would begin with a new prompt.",
            "engine",
        )

    def _describe(self, name: str, kind: str, text: str, labels: tuple[str, ...]) -> str:
        full = f"scopekv_{name}"
        shown = f"{full}_total" if kind == "counter" else full
        self.described.append(Described(shown, kind, text, labels))
        return full

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        full = self._describe(name, "counter", text, labels)
        return Counter(full, text, labels, registry=self._registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        full = self._describe(name, "gauge", text, labels)
        return Gauge(full, text, labels, registry=self._registry)

    def _times(self, name: str, text: str, bounds: tuple[float, ...]) -> Times:
        times = Times(self._describe(name, "histogram", text, ()), text, bounds)
        self._registry.register(times)
        return times

    def answered(self, endpoint: str, status: int) -> None:
        child = self._answers.get((endpoint, status))
        if child is None:  # kept, because finding one by its labels costs as much as counting
            child = self._answers[endpoint, status] = self._requests.labels(endpoint, str(status))
        self._add(child)

    def engine_error(self, kind: str) -> None:
        self._engine_errors.labels(kind).inc()

    def upstream_counted(self, upstream: str, input_tokens: int, cached_tokens: int) -> None:
        """Count one answer of a provider, by its own usage."""
        self._upstream_input.labels(upstream).inc(input_tokens)
        self._upstream_cached.labels(upstream).inc(cached_tokens)

    def token_refused(self, reason: IdentityReason) -> None:
        self._tokens_refused.labels(reason.value).inc()

    def probed(self, kind: str) -> None:
        """Count one alarm; `kind` is a `ProbeKind`."""
        self._probes.labels(kind).inc()

    def routed(self, reason: RouteReason) -> None:
        """Count one choice of an instance. A request that is tried again is counted again."""
        self._add(self._routes[reason])

    def counted(
        self, input_tokens: int, cached_by_scope: Mapping[ScopeKind, int], org: str
    ) -> None:
        """Count one answer's prompt: token hit rate is cached_tokens over input_tokens.

        `org` is seen only where `org_label` was switched on.
        """
        self._add(self._answered)
        self._add(self._input, input_tokens)
        for scope, tokens in cached_by_scope.items():
            child = self._cached_of.get(scope)
            if child is None:
                child = self._cached_of[scope] = self._cached.labels(scope.value)
            if tokens:
                self._add(child, tokens)
        if any(cached_by_scope.values()):
            self._add(self._hits)
        if self._by_org is not None:
            self._by_org[0].labels(org).inc(input_tokens)
            self._by_org[1].labels(org).inc(sum(cached_by_scope.values()))

    def open_receipts(self, state: str, count: int) -> None:
        self._open_receipts.labels(state).set(count)

    def purged(self, seconds: float) -> None:
        """Count one receipt that was done after so long."""
        self._purge_seconds.observe(seconds)

    def now(
        self,
        *,
        waiting: Mapping[tuple[str, str], int],
        running: int,
        instances: Sequence[InstanceNow],
    ) -> None:
        """Set what only a scrape asks for. An instance that is gone leaves no line behind.

        `waiting`: by what for, and by the name of an upstream (else empty).
        """
        for place, count in waiting.items():
            self._waiting.labels(*place).set(count)
        self._running.set(running)
        for gauge in (self._instances, self._in_flight, self._queue):
            gauge.clear()
        for (state, isolation), count in Count((i.state, i.isolation) for i in instances).items():
            self._instances.labels(state, isolation).set(count)
        for one in instances:
            self._in_flight.labels(one.name).set(one.in_flight)
            self._queue.labels(one.name).set(one.queue_seconds)

    def text(self) -> bytes:
        pending, self._pending = self._pending, {}
        for counter, count in pending.items():
            counter.inc(count)
        return generate_latest(self._registry)

    def _add(self, counter: Counter, count: int = 1) -> None:
        """Count what each request counts. On the event loop alone: the library's lock costs more.

        Added up for the next scrape.
        """
        self._pending[counter] = self._pending.get(counter, 0) + count
