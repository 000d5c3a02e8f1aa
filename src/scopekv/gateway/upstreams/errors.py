"""A failure inside a provider's good answer, in our own words.

An answer that has begun with 200 may still end in an error, and its words tell of the workspace as
those of a 429 do: limits, what all customers used of them, the organisation's name there (L10).
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

WORDS = "the provider could not finish this answer: retry"
_TOLD = re.compile(rb'"error"\s*:\s*\{|"type"\s*:\s*"error"')
_END = re.compile(rb"(\r?\n\r?\n)")
_KEPT = ("type", "code")
_UNREADABLE = {"error": {"type": "server_error", "message": WORDS}}


def whole_answer(content: bytes) -> bytes:
    """A whole answer that may say that it failed (Responses). Cost: one look where it does not."""
    return content if _TOLD.search(content) is None else _told(content)


def events(data: bytes) -> bytes:
    """Whole events of a stream. Cost: one look where none is an error."""
    if _TOLD.search(data) is None:
        return data
    return b"".join([_event(part) if _TOLD.search(part) else part for part in _END.split(data)])


def _event(event: bytes) -> bytes:
    named, found, text = event.partition(b"data:")
    if not found:
        return event  # a comment, a name: no client reads it as an error
    text = text.replace(b"\r\n", b"\n").replace(b"\ndata:", b"\n")
    return b"%b%b %b" % (named, found, _told(text))


def _told(text: bytes) -> bytes:
    try:
        told = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return msgspec.json.encode(_UNREADABLE)
    if not isinstance(told, dict):
        return text
    changed = _reworded(told)
    inner = told.get("response")
    if isinstance(inner, dict):
        changed = _reworded(inner) or changed
    return msgspec.json.encode(told) if changed else text


def _reworded(told: dict[str, Any]) -> bool:
    """Put the error that an object holds, or is, into our words. Whether there was one."""
    error = told.get("error")
    if isinstance(error, dict):
        told["error"] = {name: error[name] for name in _KEPT if name in error} | {"message": WORDS}
    if told.get("type") == "error" and "message" in told:
        told["message"] = WORDS
        return True
    return isinstance(error, dict)
