"""Write docs/reference/*.md from the code: settings, errors, reason codes, metrics, commands.

    .venv/bin/python scripts/reference.py            write them anew
    .venv/bin/python scripts/reference.py --check    exit code 1 if one is stale; nothing is written

What has no words of its own in the code raises `LookupError`: the reference is complete, or fails.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

import click
import msgspec
from msgspec import inspect as shapes

from scopekv import errors
from scopekv.cli.main import main as cli
from scopekv.core.administration import AdminReason
from scopekv.core.explaining.causes import FIXES, MissCause
from scopekv.core.reasons import (
    FetchReason,
    RouteReason,
    ScopeReason,
    TicketReason,
)
from scopekv.core.receipts import LineReason, LineState, ReceiptState
from scopekv.gateway.errors_http import TABLE
from scopekv.gateway.metrics import Described, Metrics
from scopekv.gateway.settings_file import SettingsFile

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "reference"
ENGINE_METRICS = ROOT / "src/scopekv/engines/vllm/offloading/metrics.py"
WIDTH = 88
_REASONS: tuple[tuple[type[StrEnum], str], ...] = (
    (ScopeReason, "In the audit log; never told to a client."),
    (TicketReason, "In the engine's answer to `GET /v1/scopekv/status`, as counts."),
    (RouteReason, "`scopekv_routes_total{reason}`."),
    (FetchReason, "`scopekv:fetch_decisions_total{reason}` of the engine."),
    (AdminReason, "In the audit log, beside each act of an administrator."),
    (ReceiptState, "State of a receipt; `scopekv_receipts{state}`."),
    (LineState, "State of a receipt's line: one tier of one instance."),
    (LineReason, "Why a receipt's line is not done; what to do: docs/operations.md."),
)


def pages() -> dict[str, str]:
    """The text of each page by its file name."""
    return {
        "settings.md": settings(),
        "errors.md": error_table(),
        "reasons.md": reasons(),
        "metrics.md": metrics(),
        "commands.md": commands(),
    }


def settings() -> str:
    """Every key of `scopekv.toml`."""
    parts = [_head("Settings", "`scopekv.toml`, which `scopekv gateway --config` reads.")]
    parts.append(_table(("key", "type", "default", "meaning"), _keys(SettingsFile)))
    for field in msgspec.structs.fields(SettingsFile):
        inner = _inner(field.type)
        if inner is not None:
            title = f"[[{field.name}]]" if "list" in str(field.type) else f"[{field.name}]"
            rows = _keys(inner)
            parts.append(f"## `{title}`\n\n" + _table(("key", "type", "default", "meaning"), rows))
    return "\n".join(parts)


def _keys(struct: type[msgspec.Struct]) -> Iterator[Sequence[str]]:
    shape = shapes.type_info(struct)
    for field in shape.fields if isinstance(shape, shapes.StructType) else ():
        told = field.type
        if not isinstance(told, shapes.Metadata) or not told.extra_json_schema:
            raise LookupError(f"the setting {field.name} has no description")
        default = "" if field.required else _shown(field)
        words = str(told.extra_json_schema["description"])
        yield f"`{field.encode_name}`", _kind(told.type), default, words


def _shown(field: shapes.Field) -> str:
    value = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    if value in ("", None) or isinstance(value, (msgspec.Struct, dict)):
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _kind(shape: shapes.Type) -> str:
    if isinstance(shape, shapes.UnionType):
        return _kind(next(t for t in shape.types if not isinstance(t, shapes.NoneType)))
    if isinstance(shape, shapes.LiteralType):
        return " or ".join(f"`{value}`" for value in shape.values)
    if isinstance(shape, shapes.EnumType):
        return " or ".join(f"`{one.value}`" for one in shape.cls)
    names: dict[type[shapes.Type], str] = {
        shapes.StrType: "text",
        shapes.IntType: "whole number",
        shapes.FloatType: "number",
        shapes.BoolType: "true or false",
        shapes.ListType: "list",
        shapes.VarTupleType: "list",
        shapes.StructType: "table",
        shapes.DictType: "table",
    }
    return names[type(shape)]


def _inner(annotated: Any) -> type[msgspec.Struct] | None:
    """The struct inside a field's type, if there is one."""
    for part in getattr(annotated, "__args__", ()):
        if isinstance(part, type) and issubclass(part, msgspec.Struct):
            return part
        found = _inner(part)
        if found is not None:
            return found
    return None


def error_table() -> str:
    """What each error is over HTTP."""
    rows = [
        (str(row.status), f"`{row.kind}`", f"`{row.code}`", f"`{kind.__name__}`", _first(kind))
        for kind, row in sorted(TABLE.items(), key=lambda item: (item[1].status, item[1].code))
    ]
    missing = {k for k in vars(errors).values() if inspect.isclass(k)} - set(TABLE)
    if any(issubclass(kind, errors.ScopeKVError) for kind in missing):
        raise LookupError(f"errors without a row in the table: {missing}")
    text = (
        "The body has OpenAI's shape, `/v1/messages` that of Anthropic. An error is found by its "
        "`code`; the message is for people."
    )
    return _head("Errors", text) + "\n" + _table(("status", "type", "code", "class", "when"), rows)


def reasons() -> str:
    """Every closed reason code, and every cause that explain names."""
    parts = [_head("Reason codes", "All are closed sets: no other value occurs.")]
    for kind, where in _REASONS:
        rows = ((f"`{code}`", words) for code, words in _members(kind))
        parts.append(f"## {kind.__name__}\n\n{where}\n\n" + _table(("code", "meaning"), rows))
    causes = ((f"`{cause}`", FIXES[cause]) for cause in MissCause)
    title = "## MissCause\n\nWhat `scopekv explain` and `scopekv lint` name, with the fix.\n\n"
    return "\n".join([*parts, title + _table(("code", "what to do"), causes)])


def _members(kind: type[StrEnum]) -> Iterator[tuple[str, str]]:
    """Members with the comment behind each."""
    source = inspect.getsource(kind)
    found = dict(re.findall(r'^ +[A-Z_]+ = "(\w+)"  # (.+)$', source, re.MULTILINE))
    for member in kind:
        if member.value not in found:
            raise LookupError(f"{kind.__name__}.{member.name} has no comment that says what it is")
        yield member.value, found[member.value]


def metrics() -> str:
    """Metrics of the gateway and of the plugin in the engine."""
    text = (
        "Of the gateway: `GET /metrics`, for an account with the role operator. No label names a "
        "caller; `scopekv_org_*` exists only with `[metrics] org_label = true`."
    )
    head = ("name", "type", "labels", "meaning")
    return "\n".join(
        (
            _head("Metrics", text),
            _table(head, map(_metric, Metrics(org_label=True).described)),
            "## Of an engine with the plugin and tiers\n\nIn vLLM's own `GET /metrics`.\n",
            _table(head, map(_metric, _of_engine())),
        )
    )


def _metric(one: Described) -> Sequence[str]:
    return f"`{one.name}`", one.kind, ", ".join(f"`{label}`" for label in one.labels), one.text


def _of_engine() -> Iterator[Described]:
    """From the source: importing it would import vLLM."""
    tree = ast.parse(ENGINE_METRICS.read_text("utf-8"))
    names = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    table = next(node for node in ast.walk(tree) if isinstance(node, ast.Dict))
    for key, call in zip(table.keys, table.values, strict=True):
        if not isinstance(key, ast.Name) or not isinstance(call, ast.Call):
            raise LookupError(f"{ENGINE_METRICS.name} is not written as name: call")
        given = {word.arg: ast.literal_eval(word.value) for word in call.keywords}
        kind = "counter" if "Counter" in ast.unparse(call.func) else "gauge"
        name = names[key.id] + ("_total" if kind == "counter" else "")
        labels = tuple(given.get("labelnames", ()))
        yield Described(name, kind, given["documentation"], labels)


def commands() -> str:
    """The help of every verb."""
    parts = [_head("Commands", "What `--help` says of each.")]
    for name, text in _helps(cli, "scopekv", None):
        parts.append(f"## `{name}`\n\n```\n{text}\n```\n")
    return "\n".join(parts)


def _helps(
    command: click.Command, name: str, parent: click.Context | None
) -> Iterator[tuple[str, str]]:
    context = click.Context(
        command,
        parent,
        name,
        terminal_width=WIDTH,
        max_content_width=WIDTH,
        help_option_names=["-h", "--help"],
    )
    with context:
        yield context.command_path, inspect.cleandoc(command.get_help(context))
        if isinstance(command, click.Group):
            for verb in command.list_commands(context):
                inner = command.get_command(context, verb)
                if inner is not None and not inner.hidden:
                    yield from _helps(inner, verb, context)


def _first(kind: type) -> str:
    """The first line of a docstring."""
    words = inspect.getdoc(kind)
    if not words:
        raise LookupError(f"{kind.__name__} has no docstring")
    return words.split("\n\n")[0].replace("\n", " ")


def _head(title: str, text: str) -> str:
    return f"# {title}\n\nMade by `scripts/reference.py` from the code; do not edit.\n\n{text}\n"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    cells = ([cell.replace("|", "\\|") for cell in row] for row in lines)
    return "".join(f"| {' | '.join(row)} |\n" for row in cells)


def stale() -> list[str]:
    """Names of pages that are not what the code says now."""
    kept = {path.name: path.read_text("utf-8") for path in FOLDER.glob("*.md")}
    made = pages()
    return sorted(name for name in kept.keys() | made.keys() if kept.get(name) != made.get(name))


if __name__ == "__main__":
    if "--check" in sys.argv[1:]:
        names = stale()
        if names:
            sys.exit(f"stale: {', '.join(names)}. Run: .venv/bin/python scripts/reference.py")
    else:
        FOLDER.mkdir(parents=True, exist_ok=True)
        for name, text in pages().items():
            (FOLDER / name).write_text(text, "utf-8")
