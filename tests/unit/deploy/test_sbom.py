"""The bill of materials names every pin, once, and is the same for the same list."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from scopekv import __version__

ROOT = Path(__file__).parents[3]


def bill(*arguments: str) -> subprocess.CompletedProcess[str]:
    script = [str(ROOT / "scripts" / "sbom.sh"), *arguments]
    env = os.environ | {"PYTHON": sys.executable}
    return subprocess.run(script, capture_output=True, text=True, env=env)


@pytest.mark.parametrize("name", ["gateway.txt", "engine-cpu.txt"])
def test_every_pin_is_a_component(name: str) -> None:
    told = bill(f"requirements/{name}").stdout
    made = json.loads(told)
    pins = (ROOT / "requirements" / name).read_text().split()
    assert [f"{one['name']}=={one['version']}" for one in made["components"]] == pins
    assert (made["bomFormat"], made["specVersion"]) == ("CycloneDX", "1.5")
    assert made["metadata"]["component"]["version"] == __version__
    refs = [one["bom-ref"] for one in made["components"]]
    assert len(set(refs)) == len(refs)
    assert made["dependencies"][0]["dependsOn"] == refs
    assert bill(f"requirements/{name}").stdout == told


def test_what_is_no_pin_is_refused(tmp_path: Path) -> None:
    listed = tmp_path / "list.txt"
    listed.write_text("torch>=2\n")
    assert "is no pin" in bill(str(listed)).stderr
