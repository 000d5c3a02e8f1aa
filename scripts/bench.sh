#!/usr/bin/env bash
# Run the worked example and every benchmark; each writes its figures as flat JSON.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

out="${SCOPEKV_BENCH_DIR:-.scopekv/bench}"
mkdir -p "$out"
.venv/bin/scopekv bench article --json "$out/article.json"
for program in benchmarks/*.py; do
  [[ -e "$program" && "$(basename "$program")" != _* ]] || continue
  name="$(basename "$program" .py)"
  echo "== $name"
  .venv/bin/python "$program" --json "$out/$name.json"
done
echo "figures: $out/*.json"
