#!/usr/bin/env bash
# Make .venv/routers: the routers that benchmarks compare with. Prints its interpreter's path.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly VENV=.venv LIST=requirements/bench-routers.txt HOME_OF_ROUTERS=.venv/routers
source scripts/python_packages.sh

if ! cmp -s "$LIST" "$HOME_OF_ROUTERS/.installed"; then
  import_pip_settings
  "$VENV/bin/uv" venv --quiet --clear --python "$VENV/bin/python" "$HOME_OF_ROUTERS" >&2
  "$VENV/bin/uv" pip install --quiet --python "$HOME_OF_ROUTERS/bin/python" -r "$LIST" >&2
  cp "$LIST" "$HOME_OF_ROUTERS/.installed"
fi
echo "$PWD/$HOME_OF_ROUTERS/bin/python"
