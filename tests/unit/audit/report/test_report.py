"""What a report says in each of its forms, and what it never does."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from scopekv.audit.report import Report, check_folder, fingerprint, tables, write_report
from scopekv.audit.report.limits import NEVER_TESTED
from scopekv.audit.results import Plain, Verdict
from scopekv.errors import ConfigError, Conflict
from tests.unit.audit.report import samples

FILES = {"report.html", "report.json", "junit.xml", "report.sarif", "manifest.json", "manifest.sig"}


def written(folder: Path, report: Report | None = None) -> Path:
    folder = folder / "report"
    write_report(report or samples.report(), folder, samples.SIGNER, force=False)
    return folder


class Page(HTMLParser):
    """What a browser would make of a page: elements, attributes and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def test_the_verdict_is_the_worst_and_nothing_proves_nothing() -> None:
    assert samples.report().exit_code == 1
    assert samples.report(samples.isolation()).exit_code == 0
    assert samples.report(samples.isolation(), samples.store(complete=False)).exit_code == 2
    assert Report(results=(), command="", started_at=0, ended_at=0).verdict is Verdict.BLIND


def test_what_was_not_tested_is_never_empty(tmp_path: Path) -> None:
    told = json.loads((written(tmp_path) / "report.json").read_text())["not_tested"]
    assert {"audit": "isolation", "what": "LoRA adapters", "why": "none is loaded"} in told
    assert {one["what"] for one in told if one["audit"] == "isolation"} == {
        "LoRA adapters",
        "claim of isolation.adapter",
    }
    assert len(told) == len(NEVER_TESTED) + 3
    page = Page((tmp_path / "report" / "report.html").read_text())
    assert all(one.what in page.text for one in NEVER_TESTED)


def test_six_files_and_nothing_left_beside_them(tmp_path: Path) -> None:
    folder = written(tmp_path)
    assert {entry.name for entry in folder.iterdir()} == FILES
    assert [entry.name for entry in tmp_path.iterdir()] == ["report"]


def test_no_file_holds_a_key(tmp_path: Path) -> None:
    for path in written(tmp_path).iterdir():
        content = path.read_bytes()
        for part in (samples.API_KEY, samples.FOREIGN_KEY, "secret&amp;key", r"plain\"secret"):
            assert part.encode() not in content, path.name


def test_hostile_names_are_text_and_never_markup(tmp_path: Path) -> None:
    content = (written(tmp_path) / "report.html").read_text()
    page = Page(content)
    assert not page.of("script") + page.of("img") + page.of("link") + page.of("iframe")
    assert not any(name.startswith("on") for _, attrs in page.tags for name in attrs)
    assert "<script>alert('x')</script>" in page.text
    assert "{{ 7*7 }}" in page.text
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202e]", content)


def test_the_page_needs_nothing_from_elsewhere(tmp_path: Path) -> None:
    page = Page((written(tmp_path) / "report.html").read_text())
    links = [one["href"] or "" for one in page.of("a")]
    assert links
    assert all(link.startswith("#") for link in links)
    targets = {attrs["id"] for _, attrs in page.tags if "id" in attrs}
    assert {link[1:] for link in links} <= targets
    assert not any({"src", "srcset", "data"} & set(attrs) for _, attrs in page.tags)


def test_the_page_can_be_read_aloud(tmp_path: Path) -> None:
    page = Page((written(tmp_path) / "report.html").read_text())
    assert page.of("html")[0]["lang"] == "en"
    assert len(page.of("caption")) == len(page.of("table"))
    assert all(one.get("scope") in {"col", "row"} for one in page.of("th"))
    assert len(page.of("h1")) == 1
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch("h[1-6]", tag)]
    assert all(after - before <= 1 for before, after in pairwise(levels))
    for word in ("held", "broken", "blind", "not tested"):  # words, not colours alone
        assert word in page.text


def test_the_page_names_what_a_reader_needs(tmp_path: Path) -> None:
    text = Page((written(tmp_path) / "report.html").read_text()).text
    for wanted in (
        "Isolation is broken",
        "2,988",
        "the attacker told 93 of 100 prompts from new ones",
        "0.503 (0.485 to 0.521)",
        "scopekv audit isolation --seed 11",
        fingerprint(samples.SIGNER.public_key),
        "1.16.0",
    ):
        assert wanted in text


def test_junit_counts_each_verdict(tmp_path: Path) -> None:
    cut = samples.store(complete=False)
    folder = written(tmp_path, samples.report(samples.isolation(), samples.timing(), cut))
    root = ET.parse(folder / "junit.xml").getroot()  # noqa: S314 - our own file
    assert {name: root.get(name) for name in ("tests", "failures", "errors", "skipped")} == {
        "tests": "17",
        "failures": "1",
        "errors": "2",
        "skipped": "1",
    }
    assert [suite.get("name") for suite in root] == [
        "scopekv.audit.isolation",
        "scopekv.audit.timing",
        "scopekv.audit.store",
    ]
    assert root.find(".//testcase[@name='timing.same_key']/failure") is not None
    assert root.find(".//testcase[@name='timing.first_touch']/error") is not None
    assert root.find(".//testcase[@name='isolation.adapter']/skipped") is not None
    assert root.find(".//testcase[@name='store.complete']/error") is not None


def test_sarif_has_what_the_standard_requires(tmp_path: Path) -> None:
    cut = samples.store(complete=False)
    folder = written(tmp_path, samples.report(samples.isolation(), samples.timing(), cut))
    log: Any = json.loads((folder / "report.sarif").read_text())
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert run["tool"]["driver"]["name"]
    assert len({rule["id"] for rule in rules}) == len(rules) == 17
    found = [(one["ruleId"], one["level"]) for one in run["results"]]
    assert found == [
        ("timing.same_key", "warning"),
        ("timing.first_touch", "warning"),
        ("store.complete", "warning"),
    ]
    for one in run["results"]:
        assert rules[one["ruleIndex"]]["id"] == one["ruleId"]
        assert one["message"]["text"]
        assert one["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert run["invocations"][0]["executionSuccessful"] is False


def test_a_report_that_is_there_is_replaced_on_demand_only(tmp_path: Path) -> None:
    folder = written(tmp_path)
    with pytest.raises(Conflict, match="--force"):
        written(tmp_path)
    later = replace(samples.report(), ended_at=1_900_000_000)
    write_report(later, folder, samples.SIGNER, force=True)
    assert json.loads((folder / "report.json").read_text())["ended_at"] == 1_900_000_000
    assert [entry.name for entry in tmp_path.iterdir()] == ["report"]


def test_what_is_no_report_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("years of work")
    (tmp_path / "file").write_text("")
    for name, error in (("thesis", Conflict), ("file", Conflict), ("file/report", ConfigError)):
        with pytest.raises(error):
            check_folder(tmp_path / name, force=True)
        with pytest.raises(error):
            write_report(samples.report(), tmp_path / name, samples.SIGNER, force=True)
    assert (tmp_path / "thesis" / "chapter.tex").read_text() == "years of work"


def test_an_empty_folder_is_taken(tmp_path: Path) -> None:
    (tmp_path / "report").mkdir()
    assert {entry.name for entry in written(tmp_path).iterdir()} == FILES


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (1250, "1,250"),
        (0.44, "0.44"),
        (3.2e-31, "3.2e-31"),
        (0.0, "0"),
        (2.0, "2"),
        (True, "yes"),
        (None, "–"),
        ([1, 2], "1, 2"),
        ([], "–"),
        ({"statistic": 0.71, "n": 100}, "statistic 0.71, n 100"),
        ({"deep": {"er": 1}}, '{"deep":{"er":1}}'),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
    ],
)
def test_values_as_people_write_them(value: Plain, shown: str) -> None:
    assert tables.text(value) == shown


def test_rows_with_gaps_and_of_other_shapes_are_tables_too() -> None:
    found = tables.tables({"rows": [{"a": 1}, {"b": "x"}], "pairs": {"a": 1}, "one": 5})
    assert [[cell.text for cell in row] for row in found[0].rows] == [["1", "–"], ["–", "x"]]
    assert [[cell.text for cell in row] for row in found[1].rows] == [["A", "1"]]
    assert tables.scalars({"one": 5, "rows": [{"a": 1}]}) == [("One", "5")]
