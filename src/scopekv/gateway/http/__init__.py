"""The gateway's HTTP/1.1 data plane: a server and a client on httptools, nothing else.

Bytes in, bytes out: what a body means is the business of `gateway`. Why not a framework:
docs/decisions/0003-data-plane.md.
"""

from scopekv.gateway.http.answer import UpstreamResponse
from scopekv.gateway.http.client import Busy, ClientPool, NotSent
from scopekv.gateway.http.connection import ErrorMap, Handler
from scopekv.gateway.http.limits import ClientLimits, RequestLimits, ServerLimits
from scopekv.gateway.http.messages import (
    Failure,
    Headers,
    Request,
    Response,
    end_to_end,
    internal_failure,
)
from scopekv.gateway.http.reply import Reply
from scopekv.gateway.http.server import Server

__all__ = [
    "Busy",
    "ClientLimits",
    "ClientPool",
    "ErrorMap",
    "Failure",
    "Handler",
    "Headers",
    "NotSent",
    "Reply",
    "Request",
    "RequestLimits",
    "Response",
    "Server",
    "ServerLimits",
    "UpstreamResponse",
    "end_to_end",
    "internal_failure",
]
