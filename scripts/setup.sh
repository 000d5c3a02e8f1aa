#!/usr/bin/env bash
# Make .venv: the pinned packages of requirements/engine-cpu.txt, and this project, editable.
#
# Does nothing when the stamps in .venv match. No registry is named here: sources come from the
# user's own pip settings (PIP_* variables, pip.conf) and are handed on to uv, which reads neither.
#   PYTHON=python3.12 scripts/setup.sh   choose the interpreter (default: python3.11, then newer)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly VENV=.venv LIST=requirements/engine-cpu.txt
source scripts/python_packages.sh

say() { printf 'setup: %s\n' "$*" >&2; }
digest() { cat "$@" | sha256sum | cut -d' ' -f1; }
stamped() { [[ -f "$VENV/.stamp-$1" && "$(<"$VENV/.stamp-$1")" == "$2" ]]; }
stamp() { printf '%s\n' "$2" >"$VENV/.stamp-$1"; }

pick_python() {
  local candidate
  for candidate in ${PYTHON:-python3.11 python3.12 python3.13 python3}; do
    if "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' \
      2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
  say "no Python 3.11 or newer with the venv module (tried: ${PYTHON:-python3.11 to python3});" \
    "install one, or name it: PYTHON=/path/to/python make setup"
  return 1
}

ensure_venv() {
  # `import pip` also catches a venv whose making was cut short.
  if "$VENV/bin/python" -c 'import pip' 2>/dev/null; then return; fi
  local python
  python="$(pick_python)"
  say "making $VENV with $("$python" --version)"
  "$python" -m venv --clear "$VENV"
}

ensure_uv() {
  if [[ -x "$VENV/bin/uv" ]]; then return; fi
  "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check 'uv>=0.9'
}

install_packages() {
  say "installing the pinned packages (2 GB; about half a minute when they are near)"
  if has_cpu_torch "$LIST"; then
    uv_install --no-deps -r "$LIST"
  else
    explain_plain_torch
    uv_install --no-deps -r <(without_local_build "$LIST")
    # With its dependencies: this build brings libraries of its own that the list does not name.
    uv_install "$(torch_pin "$LIST" | cut -d+ -f1)"
  fi
}

main() {
  # Two set-ups at once would tear each other's venv: the second waits, then finds it done.
  exec 9<.
  if command -v flock >/dev/null; then flock 9; fi

  local packages project
  packages="$(digest "$LIST" scripts/python_packages.sh)"
  project="$(digest pyproject.toml)"
  if stamped packages "$packages" && stamped project "$project" && [[ -x $VENV/bin/scopekv ]]; then
    return
  fi
  ensure_venv
  ensure_uv
  import_pip_settings
  if ! stamped packages "$packages"; then
    install_packages
    stamp packages "$packages"
  fi
  uv_install --no-deps -e .
  stamp project "$project"
  say "ready: $VENV/bin/scopekv"
}

main
