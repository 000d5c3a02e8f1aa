"""Markers, and putting them where they belong in what both providers' bodies have alike."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from scopekv.core.policy import PartRole
from scopekv.core.scopes import Scope
from scopekv.gateway.upstreams.cutting import Cuts, Stretch

Body = dict[str, Any]
Markers = Mapping[Scope, str]  # what begins a scope's first text; a public document has none


def marked(stretch: Stretch, markers: Markers) -> str:
    """The text of a stretch as it is sent; of what is no text, the marker alone."""
    marker = markers.get(stretch.begins, "") if stretch.begins is not None else ""
    return marker + (stretch.text or "")


def joined(stretches: tuple[Stretch, ...] | list[Stretch], markers: Markers) -> str:
    """A content that stays one string."""
    return "".join(marked(stretch, markers) for stretch in stretches)


def says_more(given: Mapping[str, Any], fields: Collection[str]) -> bool:
    """Whether an object has words beside its text (a name, calls, citations): in fields but these.

    Nobody knows where a provider puts them in the prompt, so their marker stands before all of it.
    """
    return any(value for name, value in given.items() if name not in fields)


def schema_marked(schema: Any, marker: str) -> Any:
    """A JSON schema whose description begins with the marker, before all of its own words."""
    if not isinstance(schema, dict):
        return schema
    described = schema.get("description")
    text = marker + (described if isinstance(described, str) else "")
    return {"description": text} | {k: v for k, v in schema.items() if k != "description"}


def begun(cuts: Cuts) -> dict[Scope, bool]:
    """The scopes that begin somewhere, and whether each is a public document's."""
    stretches = (stretch for piece in cuts for stretch in piece)
    return {s.begins: s.public for s in stretches if s.begins is not None}


def role_of(name: Any) -> PartRole:
    """Whose a message is by its role. One of its own kind is the caller's."""
    return PartRole.SYSTEM if name in ("system", "developer") else PartRole.MESSAGES
