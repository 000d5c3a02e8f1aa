"""What docs/threats.md cites exists: tests, their files, checks of audits."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "threats.md").read_text("utf-8")
AUDIT = ROOT / "src" / "scopekv" / "audit"


def test_every_cited_test_exists() -> None:
    defined: set[str] = set()
    for path in (ROOT / "tests").rglob("*.py"):
        defined.update(re.findall(r"def (test_\w+)", path.read_text("utf-8")))
        defined.add(path.stem)
    cited = set(re.findall(r"`(test_\w+)`", TEXT))
    assert len(cited) > 50
    assert cited - defined == set()


def test_every_cited_file_of_tests_exists() -> None:
    cited = set(re.findall(r"`((?:\w+/)+\w+)`", TEXT))
    assert len(cited) > 20
    lost = {
        one
        for one in cited
        if not any(
            (base / one).is_dir() or (base / f"{one}.py").is_file()
            for base in (ROOT, ROOT / "tests")
        )
    }
    assert lost == set()


def test_every_cited_check_of_an_audit_exists() -> None:
    cited = re.findall(r"`(isolation|store|timing)\.([\w.]+)`", TEXT)
    assert len(cited) > 10
    for audit, name in cited:
        source = " ".join(path.read_text("utf-8") for path in (AUDIT / audit).rglob("*.py"))
        for part in name.split("."):
            assert re.search(rf"\b{part}\b", source), f"{audit}.{name}"
