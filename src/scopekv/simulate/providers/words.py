"""What a simulated provider takes for tokens, and an error of one."""

from __future__ import annotations

import json
import re
from typing import Any

_WORDS = re.compile(r"\w+|[^\w\s]")


class Wrong(Exception):
    """A request that the provider refuses with 400."""


def words(value: Any) -> tuple[str, ...]:
    """The tokens of a text, or of anything else as JSON."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return tuple(_WORDS.findall(text))
