"""How long each page of the console takes with a million recorded requests.

    python benchmarks/console.py [--orgs 200] [--instances 4] [--rounds 20] [--json FILE]

A real gateway over SQLite, one simulated engine, and tallies of a million requests in one day of
`orgs` organisations on `instances` instances: as many rows as such a day leaves. Pages are fetched
by HTTP on loopback as the operator, and as an organisation's administrator. In milliseconds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import tempfile
import time
from pathlib import Path

import uvloop

from scopekv.cli.options import default_data_dir
from scopekv.core.scopes import ScopeKind
from scopekv.core.speeds import PrefillCurve
from scopekv.core.tallies import Answered, Place, Tally, places
from scopekv.engines.model import ensure_model
from scopekv.gateway.administration import LOCAL_OPERATOR
from scopekv.simulate.browser import Browser
from scopekv.simulate.model import SimulatedModel
from scopekv.simulate.stage import Stage, text_of

REQUESTS = 1_000_000
ACCOUNTS_EACH = 5
PAGES = (
    *("", "?window=hour", "?window=month", "?org=acme", "/documents", "/requests", "/instances"),
    *("/revoke", "/receipts", "/log", "/audits"),
)


def some_tallies() -> list[Tally]:
    """Tallies of single requests, to be counted many times."""
    dice = random.Random(1)
    made = []
    for _ in range(50):
        own = dice.randint(64, 1600)
        kinds = {ScopeKind.DOCUMENT: 2560, ScopeKind.ORG: 640, ScopeKind.USER: own}
        cached = {kind: tokens if dice.random() < 0.7 else 0 for kind, tokens in kinds.items()}
        curve = PrefillCurve(0.01, 1 / 4000, 0.0)
        made.append(Answered(kinds, cached, None, 0.2, own // 9, curve).tally())
    return made


def record(stage: Stage, orgs: list[str], instances: int) -> int:
    """A day of requests, a quarter of an hour at a time; as many rows as if each came alone."""
    dice, now, pool = random.Random(2), time.time(), some_tallies()
    each = -(-REQUESTS // (96 * len(orgs) * instances * ACCOUNTS_EACH))  # rounded up
    for quarter in range(96):
        start = int(now) - (95 - quarter) * 900
        summed: dict[Place, Tally] = {}
        for number in range(len(orgs) * instances * ACCOUNTS_EACH):
            org, rest = divmod(number, instances * ACCOUNTS_EACH)
            instance, account = divmod(rest, ACCOUNTS_EACH)
            one = Tally(tuple(each * value for value in dice.choice(pool).values))
            for place in places(
                start, org=orgs[org], account=f"usr_{org}_{account}", instance=f"engine-{instance}"
            ):
                summed[place] = summed[place] + one if place in summed else one
        stage.deployment.world.tallies.add(summed, now)
    return 96 * each * len(orgs) * instances * ACCOUNTS_EACH


async def timed(browser: Browser, path: str, rounds: int) -> list[float]:
    """Milliseconds from sending to the whole page, sorted."""
    found = []
    for _ in range(rounds):
        began = time.perf_counter()
        answer = await browser.get(path)
        found.append(1000 * (time.perf_counter() - began))
        if answer.status not in (200, 404):
            raise SystemExit(f"{path} answered {answer.status}")
    return sorted(found)


async def run(arguments: argparse.Namespace) -> dict[str, object]:
    model = SimulatedModel.load(ensure_model(default_data_dir()), max_model_len=2048)
    with tempfile.TemporaryDirectory() as folder:
        async with Stage(Path(folder), model) as stage:
            keys = {
                "operator": stage.deployment.account("hq", "root", roles=["operator"]),
                "org_admin": stage.deployment.account("acme", "anna", roles=["org_admin"]),
            }
            for number in range(arguments.orgs - 2):
                stage.deployment.account(f"org-{number}", "one")
            for number in range(40):
                await stage.client.chat(keys["operator"], text_of(f"asked {number}", 60))
            orgs = stage.deployment.administration.orgs
            listed = orgs.list(LOCAL_OPERATOR, after="", limit=1000).data
            uids = [str(getattr(one, "uid", "")) for one in listed]
            began = time.perf_counter()
            count = await asyncio.to_thread(record, stage, uids, arguments.instances)
            print(f"{count} requests recorded in {time.perf_counter() - began:.0f} s")
            found: dict[str, object] = {"requests": count}
            for who, key in keys.items():
                browser = Browser(stage.deployment.url)
                await browser.log_in(key)
                for path in PAGES:
                    times = await timed(browser, path, arguments.rounds)
                    row = {"median": round(statistics.median(times), 1), "max": round(times[-1], 1)}
                    found[f"{who} /console{path}"] = row
                    print(f"{who:10} /console{path:16} {row}")
            return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--orgs", type=int, default=200)
    parser.add_argument("--instances", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    found = uvloop.run(run(arguments))
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
