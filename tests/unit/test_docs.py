"""The documentation's links lead somewhere, and a translation says what the original says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.unit.markdown import ROOT, anchors, blocks, links, pages

TRANSLATED = ("README.md", "docs/tutorial.md")
COMMENT = re.compile(r"(?:^|\s+)# .*$", re.MULTILINE)
HANGUL = re.compile(r"[가-힣]")


def test_every_link_leads_to_a_file_and_a_heading() -> None:
    lost = []
    for page in pages():
        for path, anchor in links(page.read_text("utf-8")):
            target = page.parent / path if path else page
            if not target.exists():
                lost.append(f"{page.relative_to(ROOT)}: {path}")
            elif anchor and anchor not in anchors(target.read_text("utf-8")):
                lost.append(f"{page.relative_to(ROOT)}: {path}#{anchor}")
    assert lost == []


def test_every_page_is_reached_from_the_index() -> None:
    index = ROOT / "docs" / "README.md"
    named = {(index.parent / path).resolve() for path, _ in links(index.read_text("utf-8")) if path}
    of_a_folder = {page for folder in named if folder.is_dir() for page in folder.glob("*.md")}
    assert [page.name for page in pages() if page not in named | of_a_folder | {index}] == []


def test_what_the_program_sends_people_to_read_is_there() -> None:
    """`see docs/PAGE.md for WHAT` in a message: the page says something of it."""
    lost, found = [], 0
    for file in (ROOT / "src").rglob("*.py"):
        for page, what in re.findall(r"see (docs/\S+\.md) for ([\w-]+)", file.read_text("utf-8")):
            found += 1
            if what not in (ROOT / page).read_text("utf-8"):
                lost.append(f"{file.relative_to(ROOT)}: {what} in {page}")
    assert found
    assert lost == []


def test_headings_become_anchors_as_on_github() -> None:
    text = (
        "# Two `commands`\n## A, b - c\n```\n# none\n```\n# Two commands\n# [한국어](x.md) 문서\n"
    )
    assert anchors(text) == {"two-commands", "a-b---c", "two-commands-1", "한국어-문서"}


@pytest.mark.parametrize("name", TRANSLATED)
def test_a_translation_has_the_same_code(name: str) -> None:
    """Comments in code may be translated; commands, output and pictures may not."""
    original, translation = _pair(name)
    for ours, theirs in zip(blocks(original), blocks(translation), strict=True):
        assert COMMENT.sub("", theirs[1]) == COMMENT.sub("", ours[1])
        assert theirs[0] == ours[0]


@pytest.mark.parametrize("name", TRANSLATED)
def test_a_translation_has_the_same_parts_and_links(name: str) -> None:
    original, translation = _pair(name)
    heads = [re.findall(r"^#+ ", text, re.MULTILINE) for text in (original, translation)]
    assert heads[0] == heads[1]
    for text in (original, translation):
        assert len(text) > 1000
    pairs = (sorted({_target(name, path) for path, _ in links(t)}) for t in (original, translation))
    first, second = pairs
    assert first == second


@pytest.mark.parametrize("name", TRANSLATED)
def test_a_page_and_its_translation_lead_to_each_other_at_the_top(name: str) -> None:
    original, translation = _pair(name)
    stem = Path(name).stem
    assert f"({stem}.ko.md)" in original[:200]
    assert f"({stem}.md)" in translation[:200]
    assert len(HANGUL.findall(translation)) > 1000


def _pair(name: str) -> tuple[str, str]:
    path = ROOT / name
    return path.read_text("utf-8"), path.with_suffix(".ko.md").read_text("utf-8")


def _target(name: str, path: str) -> Path:
    """Where a link leads, with a translation of a page as that page."""
    target = (ROOT / name).parent / path
    return (target.parent / target.name.replace(".ko.md", ".md")).resolve()
