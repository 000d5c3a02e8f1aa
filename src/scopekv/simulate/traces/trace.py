"""Open a recorded workload, whatever its format."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from scopekv.core.request_log import FORMAT
from scopekv.errors import Misuse
from scopekv.simulate.traces import servegen
from scopekv.simulate.traces.arrivals import Arrivals
from scopekv.simulate.traces.hash_ids import Layout, layout_of, read_hash_ids
from scopekv.simulate.traces.lengths import columns_of, read_lengths
from scopekv.simulate.traces.lines import Lines, read_object
from scopekv.simulate.traces.request import TracedRequest
from scopekv.simulate.traces.request_log import read_request_log
from scopekv.simulate.traces.weka import read_weka


class TraceFormat(StrEnum):
    """How a trace is written; recognised by its first line."""

    HASH_IDS = "hash_ids"
    WEKA = "weka"
    LENGTHS = "lengths"
    REQUEST_LOG = "request_log"


@dataclass(frozen=True, slots=True)
class Trace:
    """A recorded workload: iterable as often as wanted, streaming, always with the same result.

    `block_tokens`: count in blocks of so many tokens, a multiple of the trace's own; None: as it
    is. `arrivals` and `share_tools` matter for conversations without a time of their own only,
    `layout` for `hash_ids`.
    """

    path: Path
    format: TraceFormat
    arrivals: Arrivals = field(default_factory=Arrivals)
    share_tools: bool = False
    block_tokens: int | None = None
    layout: Layout = field(default_factory=Layout)

    @property
    def name(self) -> str:
        """The file's name without its endings."""
        return self.path.name.split(".")[0]

    def __iter__(self) -> Iterator[TracedRequest]:
        """Raises Misuse that names the file and the line, SingleBlocks where `layout` is wrong."""
        lines = Lines(self.path)
        if self.format is TraceFormat.LENGTHS:
            requests = read_lengths(lines)
        elif self.format is TraceFormat.WEKA:
            requests = read_weka(lines, self.arrivals, share_tools=self.share_tools)
        elif self.format is TraceFormat.REQUEST_LOG:
            requests = read_request_log(lines)
        else:
            requests = read_hash_ids(lines, self.layout)
        if self.block_tokens is None:
            return requests
        wanted = self.block_tokens
        return (in_blocks_of(request, wanted) for request in requests)


def open_trace(
    path: Path,
    *,
    arrivals: Arrivals | None = None,
    share_tools: bool = False,
    block_tokens: int | None = None,
) -> Trace:
    """Recognise a trace by its first lines. Raises Misuse for what is none."""
    lines = Lines(path)
    first = next(iter(lines), "")
    if not first:
        raise Misuse(f"the trace {path} is empty")
    format_ = _format_of(lines, first)
    layout = layout_of(lines) if format_ is TraceFormat.HASH_IDS else Layout()
    return Trace(path, format_, arrivals or Arrivals(), share_tools, block_tokens, layout)


def _format_of(lines: Lines, first: str) -> TraceFormat:
    if first == servegen.HEADER:
        raise lines.wrong("begins a summary of clients, not a trace: use read_clients")
    if first.startswith("version https://git-lfs"):
        raise lines.wrong("is a pointer of Git LFS, not the file: `git lfs pull`")
    if first.startswith("["):
        raise lines.wrong("begins a JSON array: make lines of it, `jq -c '.[]' FILE > LINES`")
    if columns_of(first) is not None:
        return TraceFormat.LENGTHS
    fields: dict[str, Any] = read_object(lines, first) if first.startswith("{") else {}
    if fields.get("format") == FORMAT:
        return TraceFormat.REQUEST_LOG
    if "hash_ids" in fields:
        return TraceFormat.HASH_IDS
    if {"requests", "tool_tokens"} <= fields.keys():
        return TraceFormat.WEKA
    raise lines.wrong(
        "begins no known trace: JSON lines with timestamp, input_length, output_length and "
        "hash_ids, a request log, coding conversations, or a CSV file with the columns of Azure, "
        "BurstGPT or Vidur (docs/planning.md). Texts and chats alone are none"
    )


def in_blocks_of(request: TracedRequest, block_tokens: int) -> TracedRequest:
    """The request in larger blocks: one is named by the last id in it, as ids name prefixes."""
    factor, rest = divmod(block_tokens, request.block_tokens)
    if rest or factor < 1:
        own = request.block_tokens
        raise Misuse(f"{block_tokens} tokens a block are no multiple of the trace's own {own}")
    if factor == 1:
        return request
    ids = request.block_ids
    wide = list(ids[factor - 1 :: factor])
    if len(ids) % factor:
        wide.append(ids[-1])
    return replace(request, block_tokens=block_tokens, block_ids=wide)
