#!/usr/bin/env bash
# Chromium for the browser tests, where there is none: Debian's or Ubuntu's, as root. Elsewhere it
# says what to install, and those tests are skipped.
set -euo pipefail

if command -v chromium >/dev/null || command -v chromium-browser >/dev/null; then exit 0; fi
say() { printf 'setup: %s\n' "$*" >&2; }
if ((EUID == 0)) && command -v apt-get >/dev/null; then
  say "installing Chromium for the browser tests (400 MB)"
  export DEBIAN_FRONTEND=noninteractive
  # Unattended upgrades may hold the lock for a while after a start.
  if apt-get -o DPkg::Lock::Timeout=60 update -qq >/dev/null &&
    apt-get -o DPkg::Lock::Timeout=60 install -qq -y chromium >/dev/null; then exit 0; fi
fi
say "no Chromium here: browser tests are skipped; install the package chromium to run them"
