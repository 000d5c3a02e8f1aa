"""What an answer says of the cache: read the engine's count, tell it per segment on request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from scopekv.core.segments import Segment

_END = b"\n\n"
HELD_BYTES_MAX = 1 << 20


class _Details(msgspec.Struct):
    cached_tokens: int | None = None


class Usage(msgspec.Struct):
    """Token counts of one answer; `cached` is None where the engine does not count."""

    prompt_tokens: int = 0
    completion_tokens: int | None = 0
    prompt_tokens_details: _Details | None = None

    @property
    def cached(self) -> int | None:
        return self.prompt_tokens_details.cached_tokens if self.prompt_tokens_details else None


class _Answer(msgspec.Struct):
    usage: Usage | None = None
    choices: list[msgspec.Raw] = []


_decoder = msgspec.json.Decoder(_Answer)


def _read(body: bytes) -> _Answer:
    try:
        return _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _Answer()


def read_usage(body: bytes) -> Usage | None:
    """The usage of a whole answer; None where there is none."""
    return _read(body).usage


@dataclass(frozen=True, slots=True)
class Shares:
    """The segments of a prompt as its caller may see them: its own, kind by kind (L10)."""

    segments: tuple[Segment, ...]

    def detail(self, usage: Usage) -> dict[str, Any]:
        """Per segment: scope kind, tokens, and how many of them came from the cache.

        A hit is a prefix, so it covers segments from the first one on.
        """
        rows = []
        for segment in self.segments:
            end = usage.prompt_tokens if segment.end is None else segment.end
            row: dict[str, Any] = {"scope": segment.scope.kind.value, "tokens": end - segment.start}
            if usage.cached is not None:
                row["cached_tokens"] = max(0, min(usage.cached, end) - segment.start)
            rows.append(row)
        return {"segments": rows}


class StreamTap:
    """Passes a stream's events on and reads its usage.

    The usage event is asked of the engine always; a client that did not ask does not get it.
    """

    __slots__ = ("_asked", "_held", "_shares", "usage")

    def __init__(self, *, asked: bool, shares: Shares | None) -> None:
        self._asked = asked
        self._shares = shares  # None: no detail wanted
        self._held = b""
        self.usage: Usage | None = None

    def feed(self, chunk: bytes) -> bytes:
        """Return what may go on now: whole events."""
        data = self._held + chunk
        end = data.rfind(_END) + len(_END) if _END in data else 0
        self._held = data[end:]
        if len(self._held) > HELD_BYTES_MAX:
            whole, self._held = data, b""
            return whole
        whole = data[:end]
        if b'"usage"' not in whole:
            return whole
        events = whole.split(_END)[:-1]
        return b"".join([self._event(event) for event in events])

    def rest(self) -> bytes:
        """What is left when the engine ends without an event's end."""
        return self._held

    def _event(self, event: bytes) -> bytes:
        if b'"usage"' not in event or not event.startswith(b"data: "):
            return event + _END
        answer = _read(event[6:])
        usage = answer.usage
        if usage is None:
            return event + _END
        self.usage = usage
        if answer.choices:
            return event + _END  # the client asked for running counts
        detail = b""
        if self._shares is not None:
            line = msgspec.json.encode({"scopekv": self._shares.detail(usage)})
            detail = b": " + line + _END  # a comment: no client trips over it
        if not self._asked:
            return detail
        return detail + event + _END


_REPORT = b'"kv_transfer_params":{"scopekv":'


def take_report(body: bytes) -> tuple[bytes, dict[str, Any] | None]:
    """Part a whole answer from what the engine's tiers report in it, which is not for clients.

    The look-up is exact: inside a text of the answer the quotes would be escaped.
    """
    if _REPORT not in body:
        return body, None
    answer = msgspec.json.decode(body)
    parameters = answer.get("kv_transfer_params")
    if not isinstance(parameters, dict):
        return body, None
    report = parameters.pop("scopekv", None)
    answer["kv_transfer_params"] = parameters or None
    return msgspec.json.encode(answer), report if isinstance(report, dict) else None


def with_detail(
    body: bytes, usage: Usage, shares: Shares, report: dict[str, Any] | None = None
) -> bytes:
    """A whole answer with the per-segment detail as its member `scopekv`.

    `report`: what was fetched from tiers for it, and why.
    """
    answer = msgspec.json.decode(body)
    if not isinstance(answer, dict):
        return body
    detail = shares.detail(usage) | ({"tiers": report} if report else {})
    return msgspec.json.encode(answer | {"scopekv": detail})


def hit_tokens(usage: Usage, segments: Sequence[Segment]) -> dict[str, int]:
    """Cached tokens by scope kind, for the counters."""
    counts: dict[str, int] = {}
    for row in Shares(tuple(segments)).detail(usage)["segments"]:
        cached = int(row.get("cached_tokens", 0))
        counts[row["scope"]] = counts.get(row["scope"], 0) + cached
    return counts
