#!/usr/bin/env bash
# Write a software bill of materials (CycloneDX 1.5, JSON) of a pinned list.
#   scripts/sbom.sh                                   the gateway's container, to stdout
#   scripts/sbom.sh requirements/engine-cpu.txt       everything that `make setup` installs
# Asks nobody: name, version and package URL are what the list says.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec "${PYTHON:-.venv/bin/python}" scripts/sbom.py "${1:-requirements/gateway.txt}"
