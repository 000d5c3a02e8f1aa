"""Lines of a gateway's request log, and lines that are none."""

from __future__ import annotations

from typing import Any

from scopekv.core.encoding import encode_tokens
from scopekv.core.request_log import (
    LoggedRequest,
    block_names,
    encode_logged,
    log_key,
    sender_names,
)
from scopekv.core.scopes import Scope, ScopeKind
from scopekv.core.segments import Segment
from tests.vectors.fixed import NAMESPACE, NOW_MS, SECRET


def request_log() -> dict[str, Any]:
    key = log_key(SECRET)
    segments = (
        Segment(0, 40, Scope(ScopeKind.DOCUMENT, ("doc-1",))),
        Segment(40, None, Scope(ScopeKind.USER, ("org-1", "user-1"))),
    )
    packed = encode_tokens(range(100))
    blocks, scopes = block_names(key, bytes(NAMESPACE.fingerprint()), packed, segments, (1, 2), 32)
    org, user = sender_names(key, "org-1", "user-1")
    one = LoggedRequest(NOW_MS, 100, 7, 32, blocks, scopes, org, user, 32, 12.5)
    line = encode_logged(one).decode()
    return {
        "secret": SECRET.hex(),
        "key": key.hex(),
        "namespace": NAMESPACE.fingerprint().hex(),
        "segments": [[s.scope.kind, list(s.scope.path), s.start, s.end] for s in segments],
        "epochs": [1, 2],
        "tokens": list(range(100)),
        "valid": [{"name": "a document and a question", "line": line}],
        "invalid": [
            {"name": name, "line": line.replace(old, new)}
            for name, old, new in (
                ("another format", "requests/1", "requests/2"),
                ("a name that is no name", org, "acme"),
                ("a block too few", f'"{blocks[0]}",', ""),
                ("kinds of too many blocks", '"document",1', '"document",2'),
                ("an unknown kind", '"user",2', '"planet",2'),
                ("no prompt", '"input_length":100', '"input_length":0'),
                ("a length that is text", '"input_length":100', '"input_length":"100"'),
                ("cached that is text", '"cached":32', '"cached":"32"'),
                ("no sender", '"user":"', '"sender":"'),
            )
        ],
    }
