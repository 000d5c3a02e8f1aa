"""A deployment with a day of traffic, requests of late, documents, receipts and a report."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator

from scopekv.core.scopes import ScopeKind
from scopekv.core.speeds import PrefillCurve
from scopekv.core.tallies import Answered, Medium, Place, Tally, places
from scopekv.gateway.administration import LOCAL_OPERATOR
from scopekv.ports import Tallies
from scopekv.simulate.stage import Stage, text_of

DAY_SECONDS = 86_400
_CURVE = PrefillCurve(0.01, 1 / 4000, 0.0)


def answer(dice: random.Random, *, warm: float) -> Tally:
    """One answered request of a made-up application: a manual, instructions, a question."""
    hit = dice.random() < warm
    manual, rules, own = 2560, 640, dice.randint(64, 1600)
    cached = {
        ScopeKind.DOCUMENT: manual if hit else 0,
        ScopeKind.ORG: rules if hit else 0,
        ScopeKind.USER: own // 2 if hit and dice.random() < 0.5 else 0,
    }
    fetched = {Medium.DIRECTORY: 640} if hit and dice.random() < 0.1 else {}
    return Answered(
        input={ScopeKind.DOCUMENT: manual, ScopeKind.ORG: rules, ScopeKind.USER: own},
        cached=cached,
        fetched=fetched if dice.random() < 0.4 else None,
        first_token_seconds=0.1 if hit else 0.9,
        only_others=dice.randint(0, own // 8),
        curve=_CURVE,
    ).tally()


def day(
    orgs: dict[str, float], account: str, now: float, *, each: int
) -> Iterator[tuple[Place, Tally]]:
    """A day, `each` requests a quarter of an hour and organisation, busier by day."""
    dice = random.Random(5)
    for quarter in range(96):
        at = int(now) - (95 - quarter) * 900
        busy = 0.35 + 0.65 * math.sin(math.pi * quarter / 96) ** 2
        warm = min(0.95, 0.3 + quarter / 60)
        for uid, weight in orgs.items():
            for number in range(max(1, round(each * busy * weight))):
                tally = answer(dice, warm=warm)
                who = account if uid == next(iter(orgs)) and not number else f"usr_{uid}"
                where = f"engine-{number % 2}"
                for place in places(at, org=uid, account=who, instance=where):
                    yield place, tally


def fill(tallies: Tallies, rows: Iterator[tuple[Place, Tally]], now: float) -> int:
    """Sum the rows by place, then add them. Returns how many there were."""
    summed: dict[Place, Tally] = {}
    count = 0
    for place, tally in rows:
        count += 1
        summed[place] = summed[place] + tally if place in summed else tally
    tallies.add(summed, now)
    return count


async def furnish(stage: Stage) -> dict[str, str]:
    """Fill a deployment of two engines; return API keys by name."""
    deployment, account = stage.deployment, stage.deployment.account
    keys = {
        "root": account("hq", "root", roles=["operator"]),
        "anna": account("acme", "anna", roles=["org_admin"]),
        "pat": account("acme", "pat", roles=["publisher"]),
        "alice": account("acme", "alice"),
        "bob": account("globex", "bob"),
    }
    account("initech", "milton")
    deployment.group("acme", "engineering", "alice", "anna")
    manual, rules = text_of("manual", 200), text_of("rules", 100)
    deployment.publish("product-manual", "public", manual)
    deployment.publish("handbook", "org:acme", text_of("handbook", 120))
    deployment.publish("designs", "group:acme/engineering", text_of("designs", 60))
    await stage.look()
    for who in ("alice", "bob", "anna", "root"):
        for number in range(3):
            system = f"It is 10:1{number} now. {rules}" if number else f"{manual}\n\n{rules}"
            await stage.client.chat(keys[who], system, f"Question {number} of {who}?")
    revoked = deployment.administration.revocations.membership(
        LOCAL_OPERATOR, "acme", "engineering", "alice"
    )
    await deployment.gateway.revoker.settled(revoked.receipt.id, 60)
    now = time.time()
    listed = deployment.administration.orgs.list(LOCAL_OPERATOR, after="", limit=10).data
    uids = {str(getattr(one, "name", "")): str(getattr(one, "uid", "")) for one in listed}
    weights = {uids["acme"]: 1.0, uids["globex"]: 0.6, uids["initech"]: 0.2}
    alice = deployment.administration.accounts.show(LOCAL_OPERATOR, "acme", "alice", service=False)
    await deployment.gateway.recorder.keep()
    fill(deployment.world.tallies, day(weights, alice.uid, now, each=20), now)
    report = deployment.world.audits / "2026-11-29-nightly"
    report.mkdir(parents=True)
    (report / "report.html").write_text("<!doctype html><title>Report</title><p>All held.</p>")
    return keys
