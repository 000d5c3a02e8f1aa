"""A provider's failure in our words: it must not tell of the workspace."""

from __future__ import annotations

import json

from scopekv.gateway.upstreams import errors

LIMIT = "Rate limit reached in organization org-17: Limit 30000, Used 29012"


def test_l10_a_whole_answer_and_one_that_nobody_can_read_tell_nothing_either() -> None:
    failed = {"status": "failed", "error": {"code": "rate_limit_exceeded", "message": LIMIT}}
    told = json.loads(errors.whole_answer(json.dumps(failed).encode()))
    assert told["error"] == {"code": "rate_limit_exceeded", "message": errors.WORDS}
    broken = f'data: {{"error": {{"message": "{LIMIT}"\n\n'.encode()
    assert b"org-17" not in errors.events(broken)
    for same in (
        b'{"status":"completed","error":null}',
        b'{"tools":[{"parameters":{"properties":{"error": {"type":"string"}}}}],"error":null}',
    ):
        assert errors.whole_answer(same) == same
    for event in (b'data: {"delta":"\\"error\\": {"}\n\n', b": comment\n\n", b"data: [DONE]\n\n"):
        assert errors.events(event) == event
