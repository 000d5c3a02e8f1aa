"""Our own formats as they look in a text that should not hold them."""

from __future__ import annotations

import re

TICKET = "a ticket"
PATTERNS = {
    # base64url of the version and of the head of "scopekv/ticket/1", which stands at byte 6
    TICKET: re.compile(rb"AWwA[A-Za-z0-9_-]{4}cwAAABBzY29wZWt2L3RpY2tldC8x"),
    "an API key": re.compile(rb"\bsk-[A-Za-z0-9_-]{20,}"),
    "a bearer token": re.compile(rb"(?i)\bbearer\s+[A-Za-z0-9._~+/-]{16,}"),
    "a salt": re.compile(rb"(?i)cache_?salt\W{1,6}[0-9a-f]{64}\b"),
    "a key wrapped by Vault": re.compile(rb"\bvault:v[0-9]+:[A-Za-z0-9+/]{20,}"),
    "token ids": re.compile(
        rb"(?i)(?:prompt_)?token_?ids\W{1,6}\[?(?:[0-9]{1,6}\s*,\s*){3}[0-9]{1,6}"
    ),
}
EXAMPLES = (b"AWwAAADOcwAAABBzY29wZWt2L3RpY2tldC8x", b"Authorization: Bearer " + b"k" * 32)


def shown_in(text: bytes) -> dict[str, int]:
    """How often each of our formats stands in `text`."""
    counts = {name: len(pattern.findall(text)) for name, pattern in PATTERNS.items()}
    return {name: count for name, count in counts.items() if count}
