"""No key leaves through a report, wherever an audit may have put one, and no text deceives."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from typing import Any

from scopekv.audit.report.contents import Report
from scopekv.core.administration import KEY_PREFIX

REMOVED = "(secret removed)"
_SECRET_CHARS_MIN = 8  # shorter ones are words, and replacing them would garble the report
_API_KEY = re.compile(re.escape(KEY_PREFIX) + r"[A-Za-z0-9_-]*")
# What XML 1.0 cannot say (section 2.2), what moves a terminal, and what turns the order of text.
_DECEIVING = re.compile(
    "[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
    "|[\u007f-\u009f\u200e\u200f\u2028-\u202e\u2066-\u2069]"
)


def cleaned(report: Report) -> Report:
    """The report with its `secrets`, and every API key of ScopeKV, taken out of every text."""
    secrets = sorted(
        (one for one in report.secrets if len(one) >= _SECRET_CHARS_MIN), key=len, reverse=True
    )

    def clean(value: Any) -> Any:
        if isinstance(value, Enum):
            return value
        if isinstance(value, str):
            return _clean(value, secrets)
        if isinstance(value, Mapping):
            return {clean(name): clean(one) for name, one in value.items()}
        if isinstance(value, list | tuple):
            return tuple(clean(one) for one in value)
        if is_dataclass(value) and not isinstance(value, type):
            changed = {one.name: clean(getattr(value, one.name)) for one in fields(value)}
            return replace(value, **changed)
        return value

    found: Report = clean(replace(report, secrets=()))
    return found


def _clean(text: str, secrets: Sequence[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, REMOVED)
    return _DECEIVING.sub("\ufffd", _API_KEY.sub(REMOVED, text))
