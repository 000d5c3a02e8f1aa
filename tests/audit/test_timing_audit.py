"""The timing audit on simulated engines: it finds what leaks, and nothing where nothing does.

Verdicts by time need a hit that saves more than a busy machine's stalls; what each arm asks is
checked by the usage, which no stall changes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from scopekv.adapters.broker_client import BrokerClient, BrokerSettings
from scopekv.audit.endpoint import Endpoint
from scopekv.audit.results import AuditResult, Check, Verdict
from scopekv.audit.timing.asking import Asker, Party
from scopekv.audit.timing.audit import TimingAudit
from scopekv.audit.timing.experiments import Arm
from scopekv.audit.timing.flooding import Flooding
from scopekv.audit.timing.plan import Parties, Sizes, plan
from scopekv.audit.timing.prompts import Letters
from scopekv.audit.timing.withdrawal import Publisher
from scopekv.errors import ConfigError
from scopekv.gateway.administration import LOCAL_OPERATOR
from scopekv.simulate.engine import SimulatedEngine
from scopekv.simulate.model import SimulatedModel
from scopekv.simulate.stage import ENGINE_KEY, Stage
from scopekv.simulate.tiers import SimulatedTiers
from scopekv.store.keyring import Keyring

pytestmark = pytest.mark.slow
TOKENS = 72  # two whole blocks of a near prompt
SIZES = Sizes(samples=24, attack_samples=0, prompt_tokens=TOKENS)
TOKEN_SECONDS = 0.0006  # 38 ms for what a hit saves


async def audited(url: str, parties: Parties, **more: Any) -> AuditResult:
    async with Endpoint(url) as endpoint:
        audit = TimingAudit(endpoint, parties, SIZES, 1, lambda *_: None, chat=False, **more)
        return await audit.run()


def verdicts(result: AuditResult) -> dict[str, Verdict]:
    return {check.name.removeprefix("timing."): check.verdict for check in result.checks}


@asynccontextmanager
async def bare(model: SimulatedModel, **settings: Any) -> AsyncIterator[SimulatedEngine]:
    """Stock vLLM, asked directly: one key, and whatever salt a caller sends."""
    async with SimulatedEngine(model, keys_path=None, api_key=ENGINE_KEY, **settings) as engine:
        yield engine


def salted(victim: str, attacker: str) -> Parties:
    return Parties(Party("victim", ENGINE_KEY, victim), (Party("attacker", ENGINE_KEY, attacker),))


def all_parties(stage: Stage) -> Parties:
    account = stage.deployment.account
    return Parties(
        Party("victim", account("acme", "alice")),
        (Party("attacker", account("globex", "bob")),),
        Party("neighbour", account("acme", "ann")),
        account("hq", "root", roles=["operator"]),
    )


async def cached(url: str, model: str, parties: Parties) -> dict[str, dict[Arm, int]]:
    """Of every experiment and arm: the cached tokens of one sample."""
    async with Endpoint(url) as endpoint:
        asker = Asker(endpoint, model, True, Letters("arms", TOKENS))
        publisher, document = None, ""
        if parties.admin_key is not None:
            publisher = Publisher(endpoint, parties.admin_key, "arms")
            document = asker.letters.fresh() + "\n"
            await publisher.publish(document)
        runs = plan(asker, parties, Sizes(), repeats=1, document=document, publisher=publisher).runs
        found = {
            run.experiment.name: {
                arm: (await run.experiment.sample(arm)).cached or 0 for arm in Arm
            }
            for run in runs
        }
        if publisher is not None:
            assert await publisher.withdraw_all() == 0
    return found


async def test_on_the_scoped_stage_every_arm_hits_its_own_and_no_other(
    tmp_path: Path, model: SimulatedModel
) -> None:
    async with Stage(tmp_path, model) as stage:
        found = await cached(stage.deployment.url, model.name, all_parties(stage))
        documents = stage.deployment.administration.documents
        left = documents.list(LOCAL_OPERATOR, after="", limit=1000, withdrawn=False).data
    levels = {"organisation", "global", "document"}
    assert found.keys() == levels | {"first_touch", "identities", "order", "after_delete"}
    for name, arms in found.items():
        assert arms[Arm.HIT] == arms[Arm.MISS], name
        assert arms[Arm.CONTROL] >= arms[Arm.MISS] + 32, name
    assert found["document"][Arm.MISS] > found["global"][Arm.MISS]  # it is shared
    assert not left


async def test_on_one_cache_every_attack_hits_the_victims(model: SimulatedModel) -> None:
    async with bare(model) as engine:
        found = await cached(engine.url, model.name, salted("", ""))
    assert found.keys() == {"global", "first_touch", "identities", "order"}
    for name, arms in found.items():
        assert arms[Arm.HIT] >= arms[Arm.MISS] + 32, name


async def test_the_scoped_stage_holds(tmp_path: Path, model: SimulatedModel) -> None:
    async with Stage(tmp_path, model) as stage:
        stage.engine.behaviour.token_seconds = TOKEN_SECONDS
        parties = all_parties(stage)
        near = Parties(parties.victim, parties.attackers, parties.neighbour)
        result = await audited(stage.deployment.url, near)
    assert verdicts(result) == {"organisation": Verdict.HELD, "global": Verdict.HELD}
    assert (result.verdict, result.exit_code, result.complete) == (Verdict.HELD, 0, True)


async def test_one_cache_for_two_parties_is_broken_and_salts_mend_it(
    model: SimulatedModel,
) -> None:
    async with bare(model) as engine:
        engine.behaviour.token_seconds = TOKEN_SECONDS
        shared = await audited(engine.url, salted("", ""))
        apart = await audited(engine.url, salted("one", "other"))
    assert verdicts(shared) == {"global": Verdict.BROKEN}
    assert (shared.verdict, shared.exit_code) == (Verdict.BROKEN, 1)
    assert verdicts(apart) == {"global": Verdict.HELD}


async def test_without_a_cache_the_audit_says_that_it_is_blind(model: SimulatedModel) -> None:
    async with bare(model, blocks_max=1) as engine:
        result = await audited(engine.url, salted("", ""))
    assert verdicts(result) == {"global": Verdict.BLIND}
    assert result.exit_code == 2
    pilot: Any = result.settings["pilot"]
    assert [one["repeats"] for one in pilot] == [1, 5, 25]


class CachedFirst(SimulatedEngine):
    """Answers cached prompts first, as a scheduler by longest prefix match does (SGLang's)."""

    async def _prefill_in_turn(self, path: str, body: dict[str, Any]) -> Any:
        before = len(self.cache)
        answer = await self._prefill(path, body)
        await asyncio.sleep(0.0 if len(self.cache) <= before + 1 else 0.05)
        return answer


async def test_order_is_the_rank_among_the_answers(model: SimulatedModel) -> None:
    async with CachedFirst(model, keys_path=None, api_key=ENGINE_KEY) as engine:
        async with Endpoint(engine.url) as endpoint:
            asker = Asker(endpoint, model.name, False, Letters("order", TOKENS))
            made = plan(asker, salted("", ""), Sizes(), repeats=1, document="", publisher=None)
            (order,) = [run.experiment for run in made.runs if run.experiment.name == "order"]
            ranks = {arm: [(await order.sample(arm)).value for _ in range(5)] for arm in Arm}
    assert sorted(ranks[Arm.HIT])[2] == sorted(ranks[Arm.CONTROL])[2] == 1.0
    assert sorted(ranks[Arm.MISS])[2] > 1.0


async def flooded(url: str, model: str, parties: Parties) -> Check:
    async with Endpoint(url) as endpoint:
        asker = Asker(endpoint, model, False, Letters(url, TOKENS))
        flooding = Flooding(asker, parties.victim, parties.attacker, 40)
        return await flooding.check(lambda *_: None)


async def test_a_flood_pushes_out_a_neighbour_of_a_small_memory_only(
    model: SimulatedModel,
) -> None:
    async with bare(model, blocks_max=80) as engine:
        small = await flooded(engine.url, model.name, salted("one", "other"))
    async with bare(model) as engine:
        large = await flooded(engine.url, model.name, salted("one", "other"))
    assert (small.verdict, large.verdict) == (Verdict.BROKEN, Verdict.BLIND)
    victim: Any = small.evidence["victim"]
    assert victim["recomputed"] == 12


class SlowHost(SimulatedTiers):
    """Host memory from which a block takes a while."""

    async def fetch(self, *args: Any, **settings: Any) -> bool:
        before = self.host_hits
        current = await super().fetch(*args, **settings)
        await asyncio.sleep(0.04 * min(1, self.host_hits - before))
        return current


async def test_with_tiers_what_a_flood_pushes_out_comes_back(
    tmp_path: Path, model: SimulatedModel
) -> None:
    """It leaves the engine's memory, as the attacker's own does, and nobody computes it again."""
    async with Stage(tmp_path, model) as stage:
        stage.engine.cache.blocks_max = 80
        secret = stage.deployment.world.instance_secret_path
        broker = BrokerClient(BrokerSettings(stage.deployment.url, secret))
        tiers = SlowHost(Keyring(broker, time.monotonic), [], host_blocks=4096)
        stage.engine.tiers = tiers
        try:
            found = await flooded(stage.deployment.url, model.name, all_parties(stage))
        finally:
            tiers.close()
            broker.close()
    victim: Any = found.evidence["victim"]
    assert found.verdict is Verdict.HELD
    assert (victim["recomputed"], victim["slower_p"] < 0.001) == (0, True)
    assert "left" in found.summary


async def test_a_wrong_key_is_named_and_ends_it_at_once(model: SimulatedModel) -> None:
    parties = Parties(Party("victim", ENGINE_KEY), (Party("attacker", "sk-wrong"),))
    async with bare(model) as engine:
        with pytest.raises(ConfigError, match="attacker 401") as caught:
            await audited(engine.url, parties)
    assert "sk-wrong" not in str(caught.value)


async def test_interrupted_it_reports_what_it_has(model: SimulatedModel) -> None:
    async with bare(model) as engine, Endpoint(engine.url) as endpoint:
        engine.behaviour.token_seconds = TOKEN_SECONDS
        working: list[asyncio.Task[AuditResult]] = []

        def step(what: str, done: int, total: int) -> None:
            if what == "global" and done >= 18:
                working[0].cancel()

        sizes = Sizes(attack_samples=0, prompt_tokens=TOKENS)
        audit = TimingAudit(endpoint, salted("", ""), sizes, 1, step, chat=False)
        working.append(asyncio.create_task(audit.run()))
        result = await working[0]
    assert not result.complete
    assert verdicts(result) == {"global": Verdict.BROKEN}
    assert 17 <= result.checks[0].tried <= 19
