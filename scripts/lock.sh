#!/usr/bin/env bash
# Re-make requirements/*.txt from pyproject.toml: engine-cpu.txt with requirements/overrides.txt, and
# gateway.txt, the part of it that the gateway's container installs.
#
# Keeps the pins that still fit; `scripts/lock.sh --upgrade` moves them. A CPU build of torch has to
# be in the package sources (see scripts/setup.sh), or the list would pin the plain one. The result
# names no host: uv.lock and pylock.toml would, so neither is kept in git.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly VENV=.venv LIST=requirements/engine-cpu.txt GATEWAY=requirements/gateway.txt
source scripts/python_packages.sh

import_pip_settings
"$VENV/bin/uv" pip compile pyproject.toml --quiet --python-version 3.11 \
  --extra engine-cpu --extra audit --extra bench --extra dev --extra postgres --extra s3 --extra valkey \
  --extra otel --extra oidc \
  --override requirements/overrides.txt --no-header --no-annotate -o "$LIST" "$@"
if ! grep -q '^torch==.*+cpu$' "$LIST"; then
  echo "lock: $LIST pins $(torch_pin "$LIST"), not a CPU build: add PyTorch's source of CPU" \
    "wheels to pip's settings and run this again" >&2
  exit 1
fi
"$VENV/bin/uv" pip compile pyproject.toml --quiet --python-version 3.11 --extra postgres --extra otel --extra oidc \
  --constraint "$LIST" --no-header --no-annotate -o "$GATEWAY"
