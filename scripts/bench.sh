#!/usr/bin/env bash
# Run the worked example and every benchmark; each writes its figures as flat JSON.
#   scripts/bench.sh [article] [plugin] [gateway] [data_plane] [tiers] [revoke] [fairness] [router]
#                    [routing] [policies]
# Default: all, one after the other.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

out="${SCOPEKV_BENCH_DIR:-.scopekv/bench}"
export SCOPEKV_DATA_DIR="${SCOPEKV_DATA_DIR:-$PWD/.venv/scopekv-data}"
mkdir -p "$out"
all="article plugin gateway data_plane tiers revoke fairness router routing policies"

run() {
  echo "== $1"
  case "$1" in
    article)
      .venv/bin/scopekv bench article --json "$out/article.json" --plot "$out/article.png" ;;
    plugin | gateway | data_plane | tiers | revoke | fairness | router | routing | policies)
      .venv/bin/python "benchmarks/$1.py" --json "$out/$1.json" ;;
    *)
      echo "bench: no benchmark is called '$1'; they are: $all" >&2
      return 2 ;;
  esac
}

if (($# == 0)); then read -ra names <<<"$all" && set -- "${names[@]}"; fi
for name in "$@"; do run "$name"; done
echo "figures: $out/"
