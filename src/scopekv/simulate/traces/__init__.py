"""Recorded workloads: readers, one file a format, that all give `TracedRequest`."""

from scopekv.simulate.traces.arrivals import Arrivals
from scopekv.simulate.traces.hash_ids import SingleBlocks
from scopekv.simulate.traces.request import UNKNOWN, TracedRequest
from scopekv.simulate.traces.servegen import Client, read_clients
from scopekv.simulate.traces.trace import Trace, TraceFormat, open_trace

__all__ = [
    "UNKNOWN",
    "Arrivals",
    "Client",
    "SingleBlocks",
    "Trace",
    "TraceFormat",
    "TracedRequest",
    "open_trace",
    "read_clients",
]
