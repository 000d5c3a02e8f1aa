"""The reference pages are what the code says, and complete."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from enum import StrEnum
from pathlib import Path
from types import ModuleType
from typing import Annotated

import click
import msgspec
import pytest

import scopekv.core.reasons as codes
from scopekv import errors
from scopekv.cli.main import main
from scopekv.gateway.metrics import Metrics
from scopekv.gateway.settings import GatewaySettings
from scopekv.gateway.settings_file import SettingsFile

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference", ROOT / "scripts" / "reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def page(name: str) -> str:
    return (ROOT / "docs" / "reference" / name).read_text("utf-8")


def test_no_page_is_stale() -> None:
    """In a process of its own: click remembers how a command was called in this one."""
    call = [sys.executable, str(ROOT / "scripts" / "reference.py"), "--check"]
    done = subprocess.run(call, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_every_setting_is_there() -> None:
    text = page("settings.md")
    for field in msgspec.structs.fields(SettingsFile):
        assert f"| `{field.name}` |" in text
    values = set(GatewaySettings.__dataclass_fields__) - {"sources"}
    assert values == {field.name for field in msgspec.structs.fields(SettingsFile)}


def test_every_error_and_reason_is_there() -> None:
    text = page("errors.md")
    for name, kind in vars(errors).items():
        if isinstance(kind, type) and issubclass(kind, errors.ScopeKVError):
            assert f"`{name}`" in text
    text = page("reasons.md")
    for kind in vars(codes).values():
        if isinstance(kind, type) and issubclass(kind, StrEnum) and kind is not StrEnum:
            assert f"## {kind.__name__}\n" in text


def test_every_metric_and_verb_is_there() -> None:
    text = page("metrics.md")
    assert all(f"`{one.name}`" in text for one in Metrics(org_label=True).described)
    verbs = re.findall(r"^## `scopekv (\w+)`$", page("commands.md"), re.MULTILINE)
    assert verbs == main.list_commands(click.Context(main))


def test_a_page_names_no_folder_of_some_machine() -> None:
    for path in (ROOT / "docs" / "reference").glob("*.md"):
        assert re.findall(r"/(?:root|work|home)/\S*", path.read_text("utf-8")) == []


def test_what_has_no_words_is_refused(reference: ModuleType) -> None:
    class Bare(msgspec.Struct):
        told: Annotated[int, msgspec.Meta(description="Told.")]
        untold: int = 1

    class Code(StrEnum):
        TOLD = "told"  # with words
        UNTOLD = "untold"

    with pytest.raises(LookupError, match="untold"):
        list(reference._keys(Bare))
    with pytest.raises(LookupError, match="UNTOLD"):
        list(reference._members(Code))
