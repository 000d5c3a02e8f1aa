"""Planted faults: do the audits catch each, and do they raise no alarm where nothing is wrong?

    python benchmarks/planted.py [--runs 20] [--clean 20] [--kinds a,b] [--jobs 2] [--json FILE]

Each run starts a fresh deployment of simulated engines (everything but the model is real), switches
one fault on, and runs the audit that must catch it, each time with another seed. A run is a catch
only if the very check that is named for the fault is broken. Clean runs switch nothing on and run
all three audits, a flood too; whatever is not held then is a false alarm, and `blind` says how many
of those proved nothing. Faults are shared out among processes, for most of a run is waiting; what
is told by time, and the clean runs, come after them and alone.
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache
from itertools import repeat
from math import sqrt
from pathlib import Path
from typing import Any

import msgspec
import uvloop
from _planted_audits import AUDITS, FLOODING, Run
from _progress import tell

from scopekv.audit.results import AuditResult, Verdict
from scopekv.cli.options import default_data_dir
from scopekv.engines.model import ensure_model
from scopekv.gateway import health
from scopekv.gateway.model_text import Built
from scopekv.gateway.model_text import built as read_template
from scopekv.simulate.model import SimulatedModel
from tests.audit.planted.registry import PLANTED

Z = 1.959964  # of 95 %
CLEAN = (*((name, "") for name in AUDITS), ("timing", FLOODING))


@dataclass
class Kind:
    """What became of one fault. `missed`: the seeds of runs that did not catch it, and why."""

    caught: int = 0
    runs: int = 0
    seconds: float = 0.0
    missed: list[dict[str, Any]] = field(default_factory=list)


def wilson(hits: int, runs: int) -> tuple[float, float]:
    """The 95 % interval of a rate (Wilson 1927)."""
    if not runs:
        return 0.0, 1.0
    rate, z2 = hits / runs, Z * Z
    middle = (rate + z2 / (2 * runs)) / (1 + z2 / runs)
    half = Z * sqrt(rate * (1 - rate) / runs + z2 / (4 * runs * runs)) / (1 + z2 / runs)
    return max(0.0, middle - half), min(1.0, middle + half)


async def audited(
    model: SimulatedModel, audit: str, check: str, seed: int, kind: str = ""
) -> AuditResult:
    """One audit of a fresh deployment, with a fault in it or without."""
    planted = PLANTED.get(kind)
    plugin = planted.plugin if planted is not None else True
    with ExitStack() as stack:
        if planted is not None:
            stack.enter_context(planted.switch())
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="planted-"))
        return await AUDITS[audit](Run(Path(folder), model, seed, plugin, check))


async def plant(kind: str, runs: int) -> Kind:
    """All runs of one fault."""
    model, planted, found = loaded(), PLANTED[kind], Kind()
    for seed in range(1, runs + 1):
        began = time.monotonic()
        try:
            result = await audited(model, planted.audit, planted.caught_by, seed, kind)
            broken = _names(result, Verdict.BROKEN)
            caught = any(name.startswith(planted.caught_by) for name in broken)
            what: list[str] = broken
        except Exception as error:  # noqa: BLE001 - a run that ends so has not caught it
            caught, what = False, [f"{type(error).__name__}: {error}"]
        found.runs += 1
        found.caught += caught
        found.seconds += time.monotonic() - began
        if not caught:
            found.missed.append({"seed": seed, "broken_instead": what})
        tell(f"{kind} {found.caught}/{found.runs}")
    return found


async def clean(runs: int) -> dict[str, Any]:
    """Runs without a fault, and what they said that is not so."""
    model = loaded()
    alarms: list[dict[str, Any]] = []
    for seed in range(1001, 1001 + runs):
        wrong: dict[str, str] = {}
        for audit, check in CLEAN:
            result = await audited(model, audit, check, seed)
            for verdict in (Verdict.BROKEN, Verdict.BLIND):
                wrong |= dict.fromkeys(_names(result, verdict), verdict.value)
        if wrong:
            alarms.append({"seed": seed, "checks": wrong})
        tell(f"clean {seed - 1000}/{runs}, {len(alarms)} false alarms")
    broken = [one for one in alarms if Verdict.BROKEN.value in one["checks"].values()]
    return {
        "clean_runs": runs,
        "false_alarms": len(broken),
        "clean_blind": len(alarms) - len(broken),
        "alarms": alarms,
    }


def _names(result: AuditResult, verdict: Verdict) -> list[str]:
    return [check.name for check in result.checks if check.verdict is verdict]


def table(found: dict[str, Kind], tidy: dict[str, Any]) -> str:
    """What was caught, with intervals."""
    lines = [f"{'fault':28}{'must break':46}{'caught':>8}  95 % interval   s/run"]
    for kind, one in found.items():
        low, high = wilson(one.caught, one.runs)
        rate = f"{one.caught}/{one.runs}"
        lines.append(
            f"{kind:28}{PLANTED[kind].caught_by:46}{rate:>8}  {low:.3f} to {high:.3f}  "
            f"{one.seconds / max(1, one.runs):5.1f}"
        )
    low, high = wilson(tidy["false_alarms"], tidy["clean_runs"])
    lines.append(
        f"false alarms: {tidy['false_alarms']} of {tidy['clean_runs']} clean runs "
        f"({low:.3f} to {high:.3f}); {tidy['clean_blind']} more proved nothing in some check"
    )
    return "\n".join(lines)


def summary(found: dict[str, Kind], tidy: dict[str, Any], runs: int) -> dict[str, Any]:
    """The figures that other programs read."""
    return {
        "planted": len(found),
        "runs_per_plant": runs,
        "caught": sum(one.caught for one in found.values()),
        **tidy,
        "by_kind": {
            kind: {
                "what": PLANTED[kind].what,
                "caught_by": PLANTED[kind].caught_by,
                "caught": one.caught,
                "runs": one.runs,
                "interval": wilson(one.caught, one.runs),
                "seconds_per_run": round(one.seconds / max(1, one.runs), 2),
                "missed": one.missed,
            }
            for kind, one in found.items()
        },
    }


def read_templates_once() -> None:
    """All deployments here have the same model: what is made of its template is kept."""
    made: dict[bytes, Built] = {}

    async def built(told: dict[str, Any]) -> Built:
        name = msgspec.json.encode(told)
        if name not in made:
            made[name] = await read_template(told)
        return made[name]

    vars(health)["built"] = built


@cache
def loaded() -> SimulatedModel:
    """What every process needs once."""
    logging.getLogger().addHandler(logging.NullHandler())  # refusals are what is tried here
    read_templates_once()
    return SimulatedModel.load(ensure_model(default_data_dir()), max_model_len=2048)


def in_process(kind: str, runs: int) -> Kind:
    """As `plant`, in a process of the pool."""
    return uvloop.run(plant(kind, runs))


def run(kinds: Sequence[str], runs: int, clean_runs: int, jobs: int) -> dict[str, Any]:
    found: dict[str, Kind] = {}
    context = multiprocessing.get_context("spawn")
    by_time = [kind for kind in kinds if PLANTED[kind].audit == "timing"]
    for group, size in (([kind for kind in kinds if kind not in by_time], jobs), (by_time, 1)):
        with ProcessPoolExecutor(size, mp_context=context) as pool:
            for kind, one in zip(group, pool.map(in_process, group, repeat(runs)), strict=True):
                found[kind] = one
                print(f"{kind}: {one.caught} of {runs}", flush=True)
    tidy = uvloop.run(clean(clean_runs))
    print(table(found, tidy))
    return summary(found, tidy, runs)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=20, help="of each fault")
    parser.add_argument("--clean", type=int, default=20, help="runs without one")
    parser.add_argument("--kinds", default=",".join(PLANTED), help="names, with commas between")
    parser.add_argument("--jobs", type=int, default=2, help="processes for the faults")
    parser.add_argument("--json", type=Path, dest="file")
    options = parser.parse_args()
    kinds = [name for name in options.kinds.split(",") if name]
    unknown = [name for name in kinds if name not in PLANTED]
    if unknown:
        parser.error(f"no such fault: {', '.join(unknown)}; there are {', '.join(PLANTED)}")
    figures = run(kinds, options.runs, options.clean, options.jobs)
    if options.file is not None:
        options.file.write_text(json.dumps(figures, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
