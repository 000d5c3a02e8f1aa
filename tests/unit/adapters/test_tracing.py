"""Spans leave over OTLP, and a collector that is not there costs nobody anything."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from scopekv.adapters.tracing import TracingSettings, open_tracer

pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="needs the otel extra")


def test_what_ended_is_sent_when_the_tracer_closes() -> None:
    got: list[tuple[str, bytes]] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            got.append((self.path, body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    with HTTPServer(("127.0.0.1", 0), Collector) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            url = f"http://127.0.0.1:{server.server_port}/v1/traces"
            tracer = open_tracer(TracingSettings(endpoint=url))
            trace = tracer.begin("chat", [])
            trace.told({"gen_ai.operation.name": "chat", "scopekv.waited_seconds": 0.0})
            trace.end()
            tracer.close()
        finally:
            server.shutdown()
            thread.join()
    ((path, body),) = got
    assert path == "/v1/traces"
    assert b"gen_ai.operation.name" in body
    assert b"scopekv-gateway" in body


@pytest.mark.slow
def test_a_collector_that_is_not_there_is_only_logged() -> None:
    tracer = open_tracer(TracingSettings(endpoint="http://127.0.0.1:9/v1/traces"))
    trace = tracer.begin("chat", [])
    trace.failed("Unavailable")
    trace.end()
    tracer.close()
