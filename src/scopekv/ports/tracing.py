"""Traces: one span for each request, from its arrival to the end of its answer.

What is told is counts, codes and names of the operator's own (model, instance): never a prompt, a
key, a ticket, or the name of a caller or organisation (L10).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

Value = str | int | float | bool
Header = tuple[bytes, bytes]


class Trace(Protocol):
    """The span of one request. `end` ends it, once; nothing here raises or waits."""

    def named(self, name: str) -> None:
        """Give it another name than it began with."""
        ...

    def told(self, attributes: Mapping[str, Value]) -> None:
        """Add attributes, by the names of OpenTelemetry's conventions where there is one."""
        ...

    def failed(self, kind: str) -> None:
        """It ended in an error of this kind: a class or a status, never an error's own words."""
        ...

    def onward(self, headers: list[Header]) -> list[Header]:
        """The headers to send on: with this span as parent (W3C Trace Context) where it is one."""
        ...

    def end(self) -> None: ...


class Tracer(Protocol):
    """Begins spans. `close` sends what is left, and may take seconds."""

    def begin(self, name: str, headers: Sequence[Header]) -> Trace:
        """A span whose parent is what `traceparent` in these headers names, if it is there."""
        ...

    def close(self) -> None: ...


class NoTrace:
    """Keeps nothing; headers go on as they came."""

    __slots__ = ()

    def named(self, name: str) -> None:
        pass

    def told(self, attributes: Mapping[str, Value]) -> None:
        pass

    def failed(self, kind: str) -> None:
        pass

    def onward(self, headers: list[Header]) -> list[Header]:
        return headers

    def end(self) -> None:
        pass


class NoTracer:
    """Tracing switched off."""

    __slots__ = ()

    def begin(self, name: str, headers: Sequence[Header]) -> Trace:
        del name, headers
        return NO_TRACE

    def close(self) -> None:
        pass


NO_TRACE = NoTrace()
