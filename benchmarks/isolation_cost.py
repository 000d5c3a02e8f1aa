"""What isolation costs on recorded workloads: token hit rates that infinite memory would reach.

    python benchmarks/isolation_cost.py TRACE... [--orgs N] [--users N] [--seed N] [--json FILE]

Each isolation of `scopekv simulate`, and the random bound: every request by a random user under a
salt for each user, which no service is like. Senders are drawn (docs/planning.md).
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from scopekv.simulate.fleet.asking import workload_of
from scopekv.simulate.fleet.identity import Isolation
from scopekv.simulate.fleet.isolation_cost import RANDOM_BOUND, allowed_by_isolation
from scopekv.simulate.fleet.tenants import TenantSpec

COLUMNS = (*(each.value for each in Isolation), RANDOM_BOUND)


def measure(traces: list[str], spec: TenantSpec, seed: int) -> list[dict[str, Any]]:
    """A row for each trace."""
    rows = []
    for trace in traces:
        print(f"{Path(trace).name} ...", file=sys.stderr)
        workload = workload_of(trace, limit=None, block_tokens=None, arrivals={})
        rows.append(
            {
                "trace": workload.name,
                "requests": workload.profile.requests,
                "conversations": workload.profile.sessions,
                "block_tokens": workload.block_tokens,
                "allowed": allowed_by_isolation(workload, spec, seed),
            }
        )
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    lines = [f"{'':24}{'requests':>10}" + "".join(f"{name:>14}" for name in COLUMNS)]
    for row in rows:
        allowed = row["allowed"]
        rates = (f"{allowed[name]:14.1%}" if name in allowed else f"{'':14}" for name in COLUMNS)
        lines.append(f"{row['trace']:24}{row['requests']:10,}" + "".join(rates))
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("traces", nargs="+", help="files, or workloads as `scopekv simulate` names")
    parser.add_argument("--orgs", type=int, default=TenantSpec().orgs)
    parser.add_argument("--users", type=int, default=TenantSpec().users)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    tenants = TenantSpec(given.orgs, given.users)
    found = measure(given.traces, tenants, given.seed)
    print(f"tenants, drawn: {tenants}, seed {given.seed}")
    print(table(found))
    if given.json is not None:
        result = {"tenants": str(tenants), "seed": given.seed, "rows": found}
        given.json.write_text(json.dumps(result, indent=2) + "\n")
