#!/usr/bin/env bash
# How the other scripts install packages: uv with the user's own pip settings. Sourced, with VENV set.

# uv reads neither pip.conf nor PIP_*: carry the sources over, unless UV_* already says otherwise.
import_pip_settings() {
  local line name
  while IFS= read -r line; do
    name="${line%%=*}"
    [[ -n "${!name:-}" ]] || export "$name=${line#*=}"
  done < <("$VENV/bin/python" scripts/pip_settings.py)
}

uv_install() {
  local quiet=--quiet
  if [[ -t 2 ]]; then quiet=; fi # a person sees the progress bars
  # Compiled now: where PYTHONDONTWRITEBYTECODE is set, each engine start would cost 8 s more.
  "$VENV/bin/uv" pip install $quiet --python "$VENV/bin/python" --compile-bytecode "$@"
}

# The pinned build of torch for CPUs, as the compiled list names it.
torch_pin() { grep -E '^torch==' "$1"; }

without_local_build() { grep -vE '^torch==' "$1"; }

has_cpu_torch() {
  local pin
  pin="$(torch_pin "$1")"
  "$VENV/bin/uv" pip install --quiet --python "$VENV/bin/python" --dry-run --no-deps "$pin" \
    2>/dev/null
}

explain_plain_torch() {
  cat >&2 <<'TEXT'
setup: no CPU build of torch was found in the package sources of this machine.
setup: Taking plain torch instead, with its dependencies: it runs on a CPU too, but is several GB.
setup: For the small build, add PyTorch's own source of CPU wheels (their install page names it for
setup: "Pip" and "CPU") to pip's extra-index-url, or put the wheel in a folder and set
setup: PIP_FIND_LINKS to it, then: make clean setup
TEXT
}
