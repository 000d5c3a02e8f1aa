"""What names an object at the provider is refused: a workspace's objects are all its customers'.

Files, stored responses and prompts, vector stores, containers are found by whoever names them with
the workspace's key, and that key is ours: no name in a request may reach them (L2).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scopekv.errors import Misuse
from scopekv.gateway.bodies import STRIPPED

_TOP = (
    *("previous_response_id", "conversation", "prompt", "container", "mcp_servers", "skills"),
    *("vector_store_ids", "file_ids", "background", "functions", "function_call", "diagnostics"),
    "thread",
)
# Members in which an id is a word of the client's own, or which go to nobody.
_OWN_WORDS = STRIPPED | {
    *("system", "messages", "instructions", "input", "prediction", "tools", "metadata"),
    *("response_format", "text", "output_config", "output_format"),
}
_NAMING = ("_id", "_ids")
_KINDS = frozenset({"item_reference", "container_upload", "mcp_approval_response"})
_INSIDE = ("content", "source", "file", "output", "image_url", "input_audio", "audio")
_ITEMS = frozenset(
    (
        *("message", "function_call", "function_call_output", "web_search_call"),
        *("custom_tool_call", "custom_tool_call_output", "local_shell_call"),
        *("local_shell_call_output", "apply_patch_call", "apply_patch_call_output"),
        *("computer_call", "computer_call_output"),
    )
)
# Tools that run at the client, or at the provider without anything kept there.
_TOOLS = (
    *("function", "custom", "web_search", "web_fetch", "bash_", "text_editor_", "computer"),
    *("memory_", "local_shell", "apply_patch"),
)


def check(body: Mapping[str, Any]) -> None:
    """Raises `Misuse` naming the field, never its value."""
    for name in _TOP:
        if body.get(name):
            raise _refusal(name)
    for name, value in body.items():
        if name not in _OWN_WORDS and value and (name.endswith(_NAMING) or _names(value)):
            raise _refusal(name)
    if body.get("store"):
        raise Misuse("store: nothing is stored at the provider through this gateway; leave it out")
    for name in ("system", "messages", "input"):
        _walk(body.get(name), name)
    items = body.get("input")
    for item in items if isinstance(items, list) else []:
        _check_item(item)
    tools = body.get("tools") or []
    if not isinstance(tools, list):
        raise Misuse("tools must be a list")
    for tool in tools:
        kind = tool.get("type", "custom") if isinstance(tool, dict) else None
        if not isinstance(kind, str) or not kind.startswith(_TOOLS):
            raise Misuse(
                "tools: one is neither a function of yours nor a web search; tools that keep files "
                "or state at the provider are not available here"
            )


def _names(option: Any) -> bool:
    """Whether an option holds an id, wherever: what providers add will be called so as well."""
    left = [option]
    while left:
        value = left.pop()
        if isinstance(value, list):
            left += value
        elif isinstance(value, dict):
            if any(
                inner and (name == "id" or name.endswith(_NAMING)) for name, inner in value.items()
            ):
                return True
            left += value.values()
    return False


def _check_item(item: Any) -> None:
    """An item of Responses. Of other kinds, an id alone makes the provider look it up."""
    if not isinstance(item, dict):
        raise Misuse("each item of input must be an object")
    kind = item.get("type", "message" if "role" in item else None)  # of an id alone: a reference
    sealed = kind == "reasoning" and bool(item.get("encrypted_content"))
    message = kind != "message" or item.get("content") is not None
    if not (isinstance(kind, str) and message and (sealed or kind in _ITEMS)):
        raise _refusal(
            "input: an item that is no message or call, or reasoning without its content"
        )


def _walk(body: Any, place: str) -> None:
    """Look at all parts. A body may be nested deeper than Python's own calls."""
    left = [(body, place)]
    while left:
        value, place = left.pop()
        if isinstance(value, list):
            left += [(item, place) for item in value]
        elif isinstance(value, dict):
            kind = value.get("type")
            if isinstance(kind, str) and kind in _KINDS:
                raise _refusal(f"{place}: {kind}")
            if place == "audio" and value.get("id"):
                raise _refusal("audio.id")
            if value.get("file_id") or (place == "source" and kind == "file"):
                raise _refusal(f"{place}: file_id")
            left += [(value[name], name) for name in _INSIDE if name in value]


def _refusal(name: str) -> Misuse:
    return Misuse(
        f"{name}: it names something that is kept at the provider, where customers are not kept "
        "apart; send the content itself"
    )
