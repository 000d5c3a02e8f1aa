"""What of an engine's answer a client sees."""

from __future__ import annotations

from scopekv.core.backlogs import HEADER
from scopekv.gateway.passing import passed


def test_what_an_engine_says_of_itself_and_of_all_tenants_stays_here() -> None:
    """L10: loads are everybody's."""
    hidden = [
        (b"server", b"uvicorn"),
        (b"date", b"today"),
        (b"endpoint-load-metrics", b"TEXT named_metrics.kv_cache_usage_perc=0.4"),
        (HEADER, b"1 2 3"),
        (b"connection", b"x-hop"),
        (b"x-hop", b"a"),
        (b"content-length", b"3"),
    ]
    kept = [(b"content-type", b"application/json"), (b"x-request-id", b"r")]
    assert passed([*hidden, *kept]) == kept
