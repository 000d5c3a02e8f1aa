"""The tiers behind an engine: how fast, how soon, and never slower than recomputing.

    python benchmarks/tiers.py [--parts bytes,ttft,sweep,regret] [--quick] [--json FILE]

    bytes    sealed directory tier against vLLM's plain `fs` tier and LMCache's AES serializer
    ttft     real engine: recompute, engine hit, host, directory, Valkey; a Valkey that hangs
    sweep    a directory from memory speed to 50 ms round trips to a hang, against no tier at all
    regret   the decision to fetch or recompute against an oracle, simulated

Everything is written to a folder of its own on the disk of the data directory, and removed.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import _fetch_regret
import _tiers_bytes
import _tiers_sweep
import _tiers_ttft
import uvloop

from scopekv.cli.options import default_data_dir
from scopekv.engines.model import ensure_model

PARTS = ("bytes", "ttft", "sweep", "regret")
AIMS = {
    "sealed_over_fs_store": "at least 0.9",
    "sealed_over_fs_load": "at least 0.9",
    "sealed_over_lmcache_aes": "at least 2",
    "slow_tier_p99_ratio_max": "at most 1.05",
    "oracle_regret": "at most 0.05",
}


def bytes_part(work: Path, data_dir: Path, *, quick: bool) -> dict[str, Any]:
    del data_dir
    rounds, blocks = (1, 64) if quick else (5, 256)
    figures = _tiers_bytes.measure(work, rounds=rounds, blocks=blocks)
    print(f"\n{_tiers_bytes.table(figures)}\n")
    return figures


def ttft_part(work: Path, data_dir: Path, *, quick: bool) -> dict[str, Any]:
    lengths, hits = ((500,), 1) if quick else (_tiers_ttft.LENGTHS, _tiers_ttft.HITS)
    model_dir, cache_dir = ensure_model(data_dir), data_dir / "cache" / "vllm"
    figures = uvloop.run(
        _tiers_ttft.measure(work, model_dir, cache_dir, lengths=lengths, hits=hits)
    )
    print(f"\n{_tiers_ttft.table(figures)}\n")
    return figures


def sweep_part(work: Path, data_dir: Path, *, quick: bool) -> dict[str, Any]:
    del data_dir
    figures = _tiers_sweep.measure(work, requests=20 if quick else 100)
    print(f"\n{_tiers_sweep.table(figures)}\n")
    return figures


def regret_part(work: Path, data_dir: Path, *, quick: bool) -> dict[str, Any]:
    del work, data_dir
    played = _fetch_regret.sweep(20 if quick else 120)
    print(f"\n{_fetch_regret.table(played)}\n")
    return dict(_fetch_regret.summary(played))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--parts", default=",".join(PARTS), help="separated by commas")
    parser.add_argument("--quick", action="store_true", help="few repeats: to see that it works")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    wanted = options.parts.split(",")
    if not set(wanted) <= set(PARTS):
        parser.error(f"parts are {', '.join(PARTS)}")
    data_dir = Path(os.environ.get("SCOPEKV_DATA_DIR") or default_data_dir()).absolute()
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    run = {"bytes": bytes_part, "ttft": ttft_part, "sweep": sweep_part, "regret": regret_part}
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="bench-tiers-", dir=data_dir) as work:
        for name in wanted:
            figures[f"load_average_before_{name}"] = os.getloadavg()[0]
            figures |= run[name](Path(work), data_dir, quick=options.quick)
            figures[f"load_average_after_{name}"] = os.getloadavg()[0]
    for name, aim in AIMS.items():
        if name in figures:
            print(f"{name:26} {figures[name]:8.3f}   {aim}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
