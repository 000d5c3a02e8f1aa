"""The timing audit on simulated engines: it finds what leaks, and nothing where nothing does."""

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
from scopekv.audit.timing.asking import Party
from scopekv.audit.timing.audit import TimingAudit
from scopekv.audit.timing.plan import Parties, Sizes
from scopekv.errors import ConfigError
from scopekv.gateway.administration import LOCAL_OPERATOR
from scopekv.simulate.completions import Answer
from scopekv.simulate.engine import SimulatedEngine
from scopekv.simulate.model import SimulatedModel
from scopekv.simulate.stage import ENGINE_KEY, Stage
from scopekv.simulate.tiers import SimulatedTiers
from scopekv.store.keyring import Keyring

pytestmark = pytest.mark.slow
TOKENS = 72  # two whole blocks of a near prompt
SIZES = Sizes(samples=28, attack_samples=0, prompt_tokens=TOKENS)
TOKEN_SECONDS = 0.0002  # 13 ms for what a hit saves


async def audited(url: str, parties: Parties, sizes: Sizes = SIZES, **more: Any) -> AuditResult:
    async with Endpoint(url) as endpoint:
        return await TimingAudit(endpoint, parties, sizes, 1, lambda *_: None, **more).run()


def verdicts(result: AuditResult) -> dict[str, Verdict]:
    return {check.name.removeprefix("timing."): check.verdict for check in result.checks}


def check(result: AuditResult, name: str) -> Check:
    return next(one for one in result.checks if one.name == f"timing.{name}")


@asynccontextmanager
async def bare(model: SimulatedModel, **settings: Any) -> AsyncIterator[SimulatedEngine]:
    """Stock vLLM, asked directly: one key, and whatever salt a caller sends."""
    kind = settings.pop("kind", SimulatedEngine)
    async with kind(model, keys_path=None, api_key=ENGINE_KEY, **settings) as engine:
        engine.behaviour.token_seconds = TOKEN_SECONDS
        yield engine


def salted(victim: str, attacker: str) -> Parties:
    return Parties(Party("victim", ENGINE_KEY, victim), (Party("attacker", ENGINE_KEY, attacker),))


async def test_the_scoped_stage_holds(tmp_path: Path, model: SimulatedModel) -> None:
    async with Stage(tmp_path, model) as stage:
        stage.engine.behaviour.token_seconds = TOKEN_SECONDS
        account = stage.deployment.account
        parties = Parties(
            Party("victim", account("acme", "alice")),
            (Party("attacker", account("globex", "bob")),),
            Party("neighbour", account("acme", "ann")),
            account("hq", "root", roles=["operator"]),
        )
        sizes = Sizes(samples=28, attack_samples=28, prompt_tokens=TOKENS)
        result = await audited(stage.deployment.url, parties, sizes, chat=False)
        documents = stage.deployment.administration.documents
        left = documents.list(LOCAL_OPERATOR, after="", limit=1000, withdrawn=False).data
    found = verdicts(result)
    assert found.pop("order") is Verdict.NOT_TESTED  # simulated engines answer first come first
    assert found == dict.fromkeys(
        (
            "organisation",
            "global",
            "document",
            "first_touch",
            "identities",
            "after_delete",
            "denied",
        ),
        Verdict.HELD,
    )
    assert (result.verdict, result.exit_code, result.complete) == (Verdict.HELD, 0, True)
    assert not left  # of what the audit published


async def test_one_cache_for_two_parties_is_broken_and_salts_mend_it(
    model: SimulatedModel,
) -> None:
    async with bare(model) as engine:
        shared = await audited(engine.url, salted("", ""))
        apart = await audited(engine.url, salted("one", "other"))
    assert verdicts(shared) == {"global": Verdict.BROKEN}
    assert (shared.verdict, shared.exit_code) == (Verdict.BROKEN, 1)
    assert verdicts(apart) == {"global": Verdict.HELD}


async def test_without_a_cache_the_audit_says_that_it_is_blind(model: SimulatedModel) -> None:
    async with bare(model, blocks_max=1) as engine:
        engine.behaviour.token_seconds = 0.00003
        result = await audited(engine.url, salted("", ""), SIZES, chat=False)
    assert verdicts(result) == {"global": Verdict.BLIND}
    assert result.exit_code == 2
    pilot: Any = result.settings["pilot"]
    assert [one["repeats"] for one in pilot] == [1, 5, 25]


class CachedFirst(SimulatedEngine):
    """Schedules as SGLang's longest prefix match: of those that wait, the best cached one."""

    async def _prefill_in_turn(self, path: str, body: dict[str, Any]) -> Answer:
        before = len(self.cache)
        answer = await self._prefill(path, body)
        computed = len(self.cache) - before
        await asyncio.sleep(0.01 if computed <= 1 else 0.02)
        return answer


async def test_every_attack_finds_a_shared_cache(model: SimulatedModel) -> None:
    sizes = Sizes(samples=28, attack_samples=28, prompt_tokens=TOKENS)
    async with bare(model, kind=CachedFirst) as engine:
        shared = await audited(engine.url, salted("", ""), sizes)
    names = ("global", "first_touch", "identities", "order")
    assert verdicts(shared) == dict.fromkeys(names, Verdict.BROKEN)


class SlowHost(SimulatedTiers):
    """Host memory from which a block takes a while."""

    async def fetch(self, *args: Any, **settings: Any) -> bool:
        before = self.host_hits
        current = await super().fetch(*args, **settings)
        await asyncio.sleep(0.01 * min(1, self.host_hits - before))
        return current


async def test_a_flood_pushes_out_a_neighbour_of_a_small_memory_only(
    model: SimulatedModel,
) -> None:
    sizes = Sizes(samples=10, attack_samples=0, prompt_tokens=TOKENS, flood=40)
    async with bare(model, blocks_max=100) as engine:
        engine.behaviour.token_seconds /= 4  # usage tells
        small = await audited(engine.url, salted("one", "other"), sizes)
    async with bare(model) as engine:
        engine.behaviour.token_seconds /= 4
        large = await audited(engine.url, salted("one", "other"), sizes)
    assert verdicts(small)["flooding"] is Verdict.BROKEN
    assert verdicts(large)["flooding"] is Verdict.BLIND
    victim: Any = check(small, "flooding").evidence["victim"]
    assert victim["recomputed"] == 12


async def test_with_tiers_what_a_flood_pushes_out_comes_back(
    tmp_path: Path, model: SimulatedModel
) -> None:
    """It leaves the engine's memory, as the attacker's own does, and nobody computes it again."""
    sizes = Sizes(samples=10, attack_samples=0, prompt_tokens=TOKENS, flood=40)
    async with Stage(tmp_path, model) as stage:
        engine = stage.engine
        engine.cache.blocks_max = 100
        engine.behaviour.token_seconds = TOKEN_SECONDS
        secret = stage.deployment.world.instance_secret_path
        broker = BrokerClient(BrokerSettings(stage.deployment.url, secret))
        engine.tiers = SlowHost(Keyring(broker, time.monotonic), [], host_blocks=4096)
        account = stage.deployment.account
        victim, attacker = account("acme", "alice"), account("globex", "bob")
        parties = Parties(Party("victim", victim), (Party("attacker", attacker),))
        try:
            result = await audited(stage.deployment.url, parties, sizes)
        finally:
            engine.tiers.close()
            broker.close()
    flooding = check(result, "flooding")
    victims: Any = flooding.evidence["victim"]
    assert flooding.verdict is Verdict.HELD
    assert victims["recomputed"] == 0
    assert victims["slower_p"] < 0.001
    assert "left" in flooding.summary


async def test_a_wrong_key_is_named_and_ends_it_at_once(model: SimulatedModel) -> None:
    parties = Parties(Party("victim", ENGINE_KEY), (Party("attacker", "sk-wrong"),))
    async with bare(model) as engine:
        with pytest.raises(ConfigError, match="attacker 401") as caught:
            await audited(engine.url, parties)
    assert "sk-wrong" not in str(caught.value)


async def test_interrupted_it_reports_what_it_has(model: SimulatedModel) -> None:
    async with bare(model) as engine, Endpoint(engine.url) as endpoint:
        working: list[asyncio.Task[AuditResult]] = []

        def step(what: str, done: int, total: int) -> None:
            if what == "global" and done >= 14:
                working[0].cancel()

        audit = TimingAudit(endpoint, salted("", ""), Sizes(attack_samples=0), 1, step)
        working.append(asyncio.create_task(audit.run()))
        result = await working[0]
    assert not result.complete
    assert verdicts(result) == {"global": Verdict.BROKEN}
    assert 13 <= check(result, "global").tried <= 15
