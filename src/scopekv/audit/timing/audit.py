"""The timing audit of one endpoint, from the first warm-up request to its result."""

from __future__ import annotations

import asyncio
import os
import platform
import secrets
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from scopekv import __version__
from scopekv.audit.endpoint import Endpoint
from scopekv.audit.results import AuditResult, Check, NotTested, Plain
from scopekv.audit.statistics import faster_p, require_scipy
from scopekv.audit.timing.asking import Asker, Load, Lost, Party
from scopekv.audit.timing.experiments import Arm, Experiment, Prefix
from scopekv.audit.timing.flooding import Flooding
from scopekv.audit.timing.judging import judged
from scopekv.audit.timing.plan import Parties, Plan, Sizes, plan
from scopekv.audit.timing.prompts import Letters
from scopekv.audit.timing.sampling import Sampling, Step
from scopekv.audit.timing.withdrawal import Publisher
from scopekv.errors import ConfigError, ScopeKVError

REPEATS = (1, 5, 25)  # of the published protocol: the fewest that show one's own hits
_PILOT_SAMPLES = 20  # 20 against 20 that do not overlap have p = 7e-12
_PILOT_ALPHA = 1e-4  # one late answer must not make each sample 25 times as dear


@dataclass(slots=True, repr=False)
class TimingAudit:
    """Use once. `model`: empty takes the first that the victim may use. `document`: the exact
    text of a document that is published for both sides, or empty."""

    endpoint: Endpoint
    parties: Parties
    sizes: Sizes
    seed: int
    step: Step
    model: str = ""
    chat: bool = True
    document: str = ""
    _name: str = field(default_factory=lambda: secrets.token_hex(8))
    _plan: Plan = field(default_factory=lambda: Plan((), ()))
    _extra: list[Check] = field(default_factory=list)
    _trouble: list[NotTested] = field(default_factory=list)
    _settings: dict[str, Plain] = field(default_factory=dict)
    _complete: bool = True

    async def run(self) -> AuditResult:
        """Ask, and judge. Cancelling it ends the asking; what was drawn so far is judged.

        Raises `ConfigError` where the endpoint refuses a party, `Unavailable` where it does not
        answer from the start.
        """
        require_scipy()
        started_at, began = int(time.time()), time.monotonic()
        letters = Letters(f"{self.seed}:{self._name}", self.sizes.prompt_tokens)
        self.model = self.model or await self._first_model()
        asker = Asker(self.endpoint, self.model, self.chat, letters)
        publisher = None
        if self.parties.admin_key is not None:
            publisher = Publisher(self.endpoint, self.parties.admin_key, self._name)
        await asker.warm_up(self.parties.all)
        load = Load(asker, self.parties.victim, self.sizes.load)
        try:
            async with load:
                await self._measure(asker, publisher)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None:
                task.uncancel()
            self._cut_short("it was ended before (Ctrl-C, or --budget-minutes)")
        except ScopeKVError as error:
            if not self._plan.runs:
                raise
            self._cut_short(str(error))
        finally:
            await self._clear_away(publisher)
        self._settings |= {
            "load_answered": load.answered,
            "load_lost": load.lost,
            "requests": asker.requests,
            "errors": dict(asker.errors),
        }
        return self._result(started_at, time.monotonic() - began)

    def _cut_short(self, why: str) -> None:
        self._complete = False
        self._trouble.append(NotTested("what had not been drawn yet", why))

    async def _clear_away(self, publisher: Publisher | None) -> None:
        if publisher is not None and (left := await publisher.withdraw_all()):
            what = f"{left} documents named audit-timing-{self._name}-* are still published"
            self._trouble.append(NotTested("withdrawing what the audit published", what))

    async def _first_model(self) -> str:
        key = self.parties.victim.key
        reply = await self.endpoint.call("GET", "/v1/models", None, key=key)
        if not reply.models:
            raise ConfigError(
                f"{self.endpoint.url}/v1/models answered the victim {reply.why}, and names no "
                "model: see that URL and key are right, or name a model"
            )
        return reply.models[0]

    async def _measure(self, asker: Asker, publisher: Publisher | None) -> None:
        if publisher is not None and not self.document:
            self.document = asker.letters.fresh() + "\n"
            await publisher.publish(self.document)
        if publisher is not None and self.sizes.attack_samples:
            await publisher.make_empty_org()
        repeats = await self._repeats(asker)
        self._plan = plan(
            asker,
            self.parties,
            self.sizes,
            repeats=repeats,
            document=self.document,
            publisher=publisher,
        )
        sampling = Sampling(self._plan.runs, alpha=self.sizes.alpha, seed=self.seed, step=self.step)
        try:
            await sampling.draw()
        finally:
            sampling.cut_short()
        if self.sizes.flood:
            flooding = Flooding(asker, self.parties.victim, self.parties.attacker, self.sizes.flood)
            self._extra.append(await flooding.check(self.step))

    async def _repeats(self, asker: Asker) -> int:
        """The fewest uses after which a party's own prompt shows as cached; else 1.

        With many engines behind one address a prompt may have to be sent more often until the
        next one finds it. These samples serve nothing else.
        """
        tried: list[Plain] = []
        chosen = 1
        own = self.parties.attacker
        for repeats in REPEATS:
            pilot = Prefix("pilot", "", asker, own, own, repeats)
            arms: dict[Arm, list[float]] = {Arm.CONTROL: [], Arm.MISS: []}
            for _ in range(_PILOT_SAMPLES):
                for arm, values in arms.items():
                    values.append(await _drawn(pilot, arm))
                done = len(arms[Arm.MISS])
                self.step(f"pilot, {repeats} uses", done, _PILOT_SAMPLES)
            p = faster_p(arms[Arm.CONTROL], arms[Arm.MISS])
            tried.append({"repeats": repeats, "n": _PILOT_SAMPLES, "p": p})
            if p < _PILOT_ALPHA:
                chosen = repeats
                break
        self._settings |= {"repeats": chosen, "pilot": tried}
        return chosen

    def _result(self, started_at: int, seconds: float) -> AuditResult:
        tested = judged(self._plan.runs, self.sizes.alpha)
        return AuditResult(
            audit="timing",
            target=self.endpoint.url,
            seed=self.seed,
            started_at=started_at,
            seconds=seconds,
            checks=(*(one.check() for one in tested), *self._extra),
            not_tested=(*self._plan.not_tested, *self._trouble),
            figures={"tests": [one.figures() for one in tested]},
            settings=asdict(self.sizes)
            | {
                "run": self._name,
                "model": self.model,
                "endpoint": "chat" if self.chat else "completions",
                "parties": _described(self.parties.all),
                "document_given": bool(self.document),
                "correction": "linear alpha spending over looks, then Holm over all tests",
                "interval": "DeLong, two-sided 95 %",
            }
            | self._settings,
            versions={
                "scopekv": __version__,
                "python": platform.python_version(),
                "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs",
            },
            complete=self._complete,
        )


async def _drawn(experiment: Experiment, arm: Arm) -> float:
    while True:  # too many losses in a row raise something else
        try:
            return (await experiment.sample(arm)).value
        except Lost:
            continue


def _described(parties: Sequence[Party]) -> list[Plain]:
    """Who asked, without credentials, and who cannot be told apart."""
    return [
        {
            "name": party.name,
            "salt": bool(party.salt),
            "same_as": [one.name for one in parties if one is not party and one.same_as(party)],
        }
        for party in parties
    ]
