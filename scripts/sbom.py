"""A pinned list as CycloneDX 1.5, the same bytes for the same list: see scripts/sbom.sh."""

from __future__ import annotations

import hashlib
import json
import re
import sys
import tomllib
import uuid
from pathlib import Path
from typing import Any
from urllib.parse import quote

ROOT = Path(__file__).parents[1]
_PIN = re.compile(r"([a-z0-9]+(?:-[a-z0-9]+)*)==([A-Za-z0-9.+!]+)")


def bill(listed: Path) -> dict[str, Any]:
    """Every pin as a component, the project as what they are parts of. `ValueError`: no pin."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    own = _component(project["name"], project["version"])
    own["type"] = "application"
    own["licenses"] = [{"license": {"id": project["license"]}}]
    parts = []
    for line in listed.read_text("utf-8").splitlines():
        found = _PIN.fullmatch(line)
        if line and not found:
            raise ValueError(f"{listed.name}: {line[:80]!r} is no pin (name==version)")
        if found:
            parts.append(_component(found[1], found[2]))
    digest = hashlib.sha256(json.dumps([own, parts]).encode()).digest()
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": uuid.UUID(bytes=digest[:16], version=4).urn,
        "version": 1,
        "metadata": {"component": own},
        "components": parts,
        "dependencies": [{"ref": own["bom-ref"], "dependsOn": [part["bom-ref"] for part in parts]}],
    }


def _component(name: str, version: str) -> dict[str, Any]:
    url = f"pkg:pypi/{name}@{quote(version, safe='')}"
    return {"type": "library", "bom-ref": url, "name": name, "version": version, "purl": url}


if __name__ == "__main__":
    json.dump(bill(Path(sys.argv[1])), sys.stdout, indent=1)
    print()
