"""Markdown as the tests of the documentation read it: code blocks, code spans, headings, links."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
_FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`([^`\n]+(?:\n[^`\n]+)?)`")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)


def pages() -> list[Path]:
    """Every page for people: README in each language, the changelog, and all under docs."""
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def blocks(text: str) -> list[tuple[str, str]]:
    """Fenced code, each with the language it names (or "")."""
    return _FENCED.findall(text)


def prose(text: str) -> str:
    """The page without its fenced code."""
    return _FENCED.sub("", text)


def spans(text: str) -> list[str]:
    """Code within sentences; a line end inside one is a space."""
    return [" ".join(found.split("\n")) for found in _SPAN.findall(prose(text))]


def links(text: str) -> Iterator[tuple[str, str]]:
    """Links to files of this repository: (path, anchor), each may be empty."""
    for target in _LINK.findall(prose(text)):
        if not re.match(r"[a-z]+:", target):
            path, _, anchor = target.partition("#")
            yield path, anchor


def anchors(text: str) -> set[str]:
    """What GitHub calls the headings: lower case, hyphens between words, a repeated one counted."""
    found: set[str] = set()
    for heading in _HEADING.findall(prose(text)):
        shown = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", shown.strip().lower()).replace(" ", "-")
        number = 0
        while (one := f"{name}-{number}" if number else name) in found:
            number += 1
        found.add(one)
    return found
