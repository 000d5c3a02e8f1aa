"""A diagnosis as JSON."""

from __future__ import annotations

from typing import Any

from scopekv.core.explaining import Diagnosis
from scopekv.core.fetching import PrefillCurve


def shown(
    diagnosis: Diagnosis, *, cached: int | None, prefill: PrefillCurve | None
) -> dict[str, Any]:
    """`prefill`: as measured; None leaves the lost time unsaid."""
    return {
        "prompt_tokens": diagnosis.prompt_tokens,
        "common_tokens": diagnosis.common_tokens,
        "expected_tokens": diagnosis.expected_tokens,
        "cached_tokens": cached,
        "causes": [
            {
                "code": cause.code.value,
                "certainty": cause.certainty.value,
                "path": cause.path or None,
                "token": cause.token,
                "tokens_lost": cause.tokens_lost,
                "seconds_lost": round(
                    prefill.seconds(cause.token, cause.token + cause.tokens_lost), 3
                )
                if prefill
                else None,
                "fix": cause.fix,
                "before": cause.before or None,
                "after": cause.after or None,
            }
            for cause in diagnosis.causes
        ],
    }
