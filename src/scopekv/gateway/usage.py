"""What an answer says of the cache: read the engine's count, tell it per segment on request."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from scopekv.core.scopes import ScopeKind
from scopekv.core.segments import Segment
from scopekv.core.values import light_value

_END, _CRLF_END = b"\n\n", b"\r\n\r\n"  # of an event; servers use one or the other
_LAST = (b"event: message_delta", b"event: response.completed")
HELD_BYTES_MAX = 1 << 20
# What is negative or absurd is no count: it would spoil everybody's sums.
_Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 40)]


@light_value()
class Usage:
    """Token counts of one answer; `cached` is None where the engine does not count."""

    prompt_tokens: int = 0
    completion_tokens: int | None = 0
    cached: int | None = None


class _Details(msgspec.Struct):
    cached_tokens: _Count | None = None


class _Told(msgspec.Struct):
    """A usage as any of the APIs tells it.

    Chat and completions have `prompt_tokens`. Responses and Messages have `input_tokens`, of which
    those of Messages are what was neither read from the cache nor written to it.
    """

    prompt_tokens: _Count = 0
    completion_tokens: _Count | None = 0
    prompt_tokens_details: _Details | None = None
    input_tokens: _Count = 0
    output_tokens: _Count | None = 0
    input_tokens_details: _Details | None = None
    cache_read_input_tokens: _Count | None = None
    cache_creation_input_tokens: _Count | None = None

    def usage(self) -> Usage:
        details = self.prompt_tokens_details or self.input_tokens_details
        cached = details.cached_tokens if details else self.cache_read_input_tokens
        total, answer = self.prompt_tokens, self.completion_tokens
        if not total:
            apart = (self.cache_read_input_tokens or 0) + (self.cache_creation_input_tokens or 0)
            total, answer = self.input_tokens + apart, self.output_tokens
        if cached is not None and cached > total:
            cached = total
        return Usage(total, answer, cached)


class _Response(msgspec.Struct):
    usage: _Told | None = None


class _Answer(msgspec.Struct):
    """A whole answer, or an event of a stream; `response` is in the last one of Responses."""

    usage: _Told | None = None
    choices: list[msgspec.Raw] = []
    response: _Response | None = None


_decoder = msgspec.json.Decoder(_Answer)


def _read(body: bytes) -> _Answer:
    try:
        return _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _Answer()


def read_usage(body: bytes) -> Usage | None:
    """The usage of a whole answer; None where there is none."""
    told = _read(body).usage
    return told.usage() if told is not None else None


@light_value()
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


class Tap(ABC):
    """Passes a stream's events on and reads its usage."""

    __slots__ = ("_held", "_shares", "usage")

    def __init__(self, shares: Shares | None) -> None:
        self._shares = shares  # None: no detail wanted
        self._held = b""
        self.usage: Usage | None = None

    def feed(self, chunk: bytes) -> bytes:
        """Return what may go on now: whole events."""
        data = self._held + chunk if self._held else chunk
        mark, last = _END, data.rfind(_END)
        if last < 0:
            mark, last = _CRLF_END, data.rfind(_CRLF_END)
        end = last + len(mark) if last >= 0 else 0
        self._held = data[end:]
        if len(self._held) > HELD_BYTES_MAX:
            whole, self._held = data, b""
            return whole
        whole = data[:end]
        told = whole.find(b'"usage"')
        if told < 0:
            return whole
        before = whole.rfind(mark, 0, told)
        start = before + len(mark) if before >= 0 else 0
        events = whole[start:].split(mark)[:-1]
        return whole[:start] + b"".join([self._event(event, mark) for event in events])

    def rest(self) -> bytes:
        """What is left when the engine ends without an event's end."""
        return self._held

    def _event(self, event: bytes, mark: bytes) -> bytes:
        """An event that may tell the usage, with its end `mark`, as the client gets it."""
        start = event.find(b"data:") if b'"usage"' in event else -1
        if start < 0 or (start and event[start - 1 : start] != b"\n"):
            return event + mark
        answer = _read(event[start + 5 :].partition(b"\n")[0])
        told = answer.usage or (answer.response.usage if answer.response else None)
        if told is None:
            return event + mark
        self.usage = self._counted(told.usage())
        return self._told(event + mark, running=bool(answer.choices))

    def _counted(self, usage: Usage) -> Usage:
        """What this event and those before it say together."""
        return usage

    @abstractmethod
    def _told(self, event: bytes, *, running: bool) -> bytes:
        """The event that told the usage, as the client gets it. `running`: it also holds text."""

    def _detail(self) -> bytes:
        if self._shares is None or self.usage is None:
            return b""
        line = msgspec.json.encode({"scopekv": self._shares.detail(self.usage)})
        return b": " + line + _END  # a comment: no client trips over it


class StreamTap(Tap):
    """Of chats and completions.

    The usage event is asked of the engine always; a client that did not ask does not get it.
    """

    __slots__ = ("_asked",)

    def __init__(self, *, asked: bool, shares: Shares | None) -> None:
        super().__init__(shares)
        self._asked = asked

    def _told(self, event: bytes, *, running: bool) -> bytes:
        if running:
            return event  # the client asked for running counts
        return self._detail() + event if self._asked else self._detail()


class EventTap(Tap):
    """Of APIs whose streams tell the usage always: in the last event, or in the last but one."""

    __slots__ = ()

    def _told(self, event: bytes, *, running: bool) -> bytes:
        last = not running and event.startswith(_LAST)
        return self._detail() + event if last else event


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


Kinds = tuple[dict[ScopeKind, int], dict[ScopeKind, int]]


def by_kind(usage: Usage, segments: Sequence[Segment]) -> Kinds:
    """Tokens by scope kind, and how many of them came from the cache, for the counters."""
    tokens: dict[ScopeKind, int] = {}
    cached: dict[ScopeKind, int] = {}
    hit = usage.cached or 0
    for segment in segments:
        kind, start = segment.scope.kind, segment.start
        end = usage.prompt_tokens if segment.end is None else segment.end
        tokens[kind] = tokens.get(kind, 0) + max(0, end - start)
        cached[kind] = cached.get(kind, 0) + max(0, min(hit, end) - start)
    return tokens, cached
