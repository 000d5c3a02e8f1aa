"""What breaks first at 1,000 instances and 10 million users: a simulated sample, and unit costs.

    python benchmarks/scale.py [--instances N] [--users N] [--requests N] [--json FILE]

The sample runs the real routing over that many instances (`scopekv.simulate.fleet`); events,
look-ups, leases and rows are priced at what one of each costs here, with the real code. Nothing is
on a network.
"""

from __future__ import annotations

import argparse
import json
import resource
import secrets
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from _progress import tell

from scopekv.adapters.ed25519 import TicketSigner, verifier
from scopekv.adapters.registry import open_registry
from scopekv.adapters.root_key import FileKeyWrapper
from scopekv.core.blocks import Fingerprint
from scopekv.core.scopes import Pseudonym, Scope, ScopeKind
from scopekv.core.tickets import Grant, Ticket, audience_id, mint
from scopekv.simulate.fleet.job import Job
from scopekv.simulate.fleet.placing import Route
from scopekv.simulate.fleet.plan import FleetPlan
from scopekv.simulate.fleet.replay import fleet_for
from scopekv.simulate.fleet.synthetic import Synthetic
from scopekv.simulate.fleet.workloads import synthetic
from scopekv.store import scope_keys
from scopekv.store.broker import LEASE_SECONDS, Authority, KeyBroker
from scopekv.store.scope_keys import Retention, ScopeEpoch

ENGINE_BLOCK_TOKENS = 16  # vLLM's default on GPUs
HOST_TOKENS = 2_000_000  # 256 GiB at 128 KiB a token
SCOPES = 400
TOLD = 25_600  # requests between two tellings
PER_INSTANCE_RATE = 0.35  # conversations a second: an A100 at half its time in prefill


class Watched:
    """A route that times each choice, and counts leases: a user new to an instance for 300 s."""

    def __init__(self, inner: Route) -> None:
        self.inner, self.reasons = inner, inner.reasons
        self.seconds, self.leases, self.hashes = 0.0, 0, Counter[str]()
        self._until: dict[tuple[int, int], float] = {}

    def choose(self, job: Job, now: float) -> int:
        began = time.process_time()
        number = self.inner.choose(job, now)
        self.seconds += time.process_time() - began
        pair = (number, job.placed.tenant.user)
        if self._until.get(pair, -1.0) <= now:
            self._until[pair] = now + LEASE_SECONDS
            self.leases += 1
        return number

    def changed(self, name: str, place: str, new: Any, gone: Any) -> None:
        self.hashes["stored"] += len(new)
        self.hashes["removed"] += len(gone)
        self.inner.changed(name, place, new, gone)

    def first_token(self, job: Job, now: float) -> None:
        self.inner.first_token(job, now)

    def ended(self, job: Job, now: float) -> None:
        self.inner.ended(job, now)


def _told(done: int) -> None:
    if done % TOLD == 0:
        tell(f"{done:,}")


def sample(instances: int, users: int, requests: int) -> dict[str, Any]:
    """Run the fleet; rates are per second of virtual time, while requests arrive."""
    made = Synthetic(
        requests=requests,
        users=users,
        orgs=max(1, users // 1000),
        documents=10_000,
        rate=PER_INSTANCE_RATE * instances,
    )
    workload = synthetic(made)
    plan = FleetPlan(instances=instances, engine_tokens=400_000, tiers={"host": HOST_TOKENS})
    fleet = fleet_for(plan, workload)
    fleet.route = route = Watched(fleet.route)
    began = time.process_time()
    fleet.run(workload.requests(), _told)
    seconds = max(request.at_seconds for request in workload.requests())
    counts = fleet.counts
    factor = made.block_tokens / ENGINE_BLOCK_TOKENS
    return {
        "requests": requests,
        "virtual_seconds": seconds,
        "requests_per_s": requests / seconds,
        "token_hit_rate": counts.cached_tokens / counts.input_tokens,
        "allowed": fleet.bounds()[0].token_hit_rate,
        "ttft_ms_p50": 1e3 * counts.ttft.at(0.5),
        "route_ms_mean": 1e3 * route.seconds / requests,
        "stored_hashes_per_s": factor * route.hashes["stored"] / seconds,
        "removed_hashes_per_s": factor * route.hashes["removed"] / seconds,
        "leases_per_s": route.leases / seconds,
        "busiest_share_over_even": instances * max(counts.by_instance.values()) / requests,
        "cpu_seconds": time.process_time() - began,
        "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def broker_costs(folder: Path) -> dict[str, float]:
    """What one scope costs: a note (SQLite), a lease of a new one, its bytes in the registry."""
    signer, secret, now = TicketSigner(bytes(32)), bytes(32), time.time()
    file = folder / "registry.db"
    registry, wrapper = open_registry(f"sqlite:///{file}"), FileKeyWrapper(folder / "wrap.key")
    here = audience_id("default")
    authority = Authority({signer.key_id: verifier(signer.public_key)}, here)
    broker = KeyBroker(registry, wrapper, authority, Retention())
    scopes = [Scope(ScopeKind.USER, ("org_1", f"usr_{n:012}")) for n in range(SCOPES)]
    before, began = _pages(file), time.process_time()
    for start in range(0, SCOPES, 200):
        wanted = [ScopeEpoch(scope, 0) for scope in scopes[start : start + 200]]
        scope_keys.note(registry, wrapper, secret, wanted, now)
    noted = time.process_time() - began
    blank = Ticket(
        key_id=signer.key_id,
        issued_ms=int(now * 1000),
        ttl_ms=30_000,
        audience=here,
        namespace=Fingerprint(bytes(32)),
        principal=Pseudonym(bytes(16)),
        nonce=bytes(16),
        uses=1,
        grants=(Grant(None, scopes[0].id(secret), 0, b""),),
    )
    tickets = []
    for scope in scopes:
        grants = (Grant(None, scope.id(secret), 0, b""),)
        one = replace(blank, nonce=secrets.token_bytes(16), grants=grants)
        tickets.append(mint(one, signer.sign))
    began = time.process_time()
    for ticket in tickets:
        broker.lease(ticket)
    leased = time.process_time() - began
    registry.close()
    return {
        "note_ms": 1e3 * noted / SCOPES,
        "lease_ms": 1e3 * leased / SCOPES,
        "row_bytes": (_pages(file) - before) / SCOPES,
    }


def _pages(file: Path) -> int:
    """Bytes of the database with what its log still holds."""
    return sum(each.stat().st_size for each in file.parent.glob(f"{file.name}*"))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--instances", type=int, default=1000)
    parser.add_argument("--users", type=int, default=10_000_000)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="scopekv-bench-") as name:
        costs = broker_costs(Path(name))
    found = {
        "instances": given.instances,
        "users": given.users,
        "sample": sample(given.instances, given.users, given.requests),
        "broker": costs,
    }
    print(file=sys.stderr)
    for part in ("sample", "broker"):
        for key, value in found[part].items():
            print(f"{key:26}{value:16,.3f}")
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
