"""Drawing and judging, on experiments whose truth is known."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field

import pytest

from scopekv.audit.results import Severity, Verdict
from scopekv.audit.timing.asking import Lost
from scopekv.audit.timing.experiments import Arm, Sample
from scopekv.audit.timing.judging import judged
from scopekv.audit.timing.sampling import Run, Sampling
from scopekv.errors import Unavailable

LOOKS = (20, 40, 60)


@dataclass
class Known:
    """Times around 1, of which a hit takes `leak` less and an own hit `shown` less."""

    name: str = "known"
    leak: float = 0.0
    shown: float = 5.0
    lost_each: int = 0  # every so manieth draw is lost; 0: none
    cached: int | None = None  # of hits; of misses it is 0
    title: str = "nothing is told"
    severity: Severity = Severity.HIGH
    main: bool = True
    usage_decides: bool = False
    silent: str = ""
    drawn: list[Arm] = field(default_factory=list)
    dice: random.Random = field(default_factory=lambda: random.Random(7))

    async def sample(self, arm: Arm) -> Sample:
        self.drawn.append(arm)
        if self.lost_each and len(self.drawn) % self.lost_each == 0:
            raise Lost("as told")
        less = {Arm.HIT: self.leak, Arm.MISS: 0.0, Arm.CONTROL: self.shown}[arm]
        cached = self.cached if arm is not Arm.MISS else None if self.cached is None else 0
        return Sample(self.dice.gauss(10.0, 1.0) - less, cached)


def _draw(*experiments: Known, looks: tuple[int, ...] = LOOKS) -> list[Run]:
    runs = [Run(one, looks) for one in experiments]
    sampling = Sampling(runs, alpha=0.01, seed=1, step=lambda *_: None)
    asyncio.run(sampling.draw())
    return runs


def _verdicts(*experiments: Known) -> list[Verdict]:
    return [one.verdict for one in judged(_draw(*experiments), 0.01)]


def test_each_verdict() -> None:
    assert _verdicts(Known()) == [Verdict.HELD]
    assert _verdicts(Known(leak=5.0)) == [Verdict.BROKEN]
    assert _verdicts(Known(shown=0.0)) == [Verdict.BLIND]
    # A leak found is a leak, whatever the control says.
    assert _verdicts(Known(leak=5.0, shown=0.0)) == [Verdict.BROKEN]


def test_a_silent_channel_is_nothing_to_attack_only_while_the_cache_is_seen() -> None:
    silent = Known("order", shown=0.0, silent="nothing tells")
    assert _verdicts(Known(), silent) == [Verdict.HELD, Verdict.NOT_TESTED]
    assert _verdicts(Known(shown=0.0), silent) == [Verdict.BLIND, Verdict.BLIND]


def test_usage_breaks_a_claim_only_where_it_counts() -> None:
    assert _verdicts(Known(cached=32)) == [Verdict.HELD]
    assert _verdicts(Known(cached=32, usage_decides=True)) == [Verdict.BROKEN]
    assert _verdicts(Known(cached=0, usage_decides=True)) == [Verdict.HELD]


def test_a_leak_ends_its_own_sampling_at_the_first_look_and_no_other() -> None:
    leaking, tight = _draw(Known("leaking", leak=5.0), Known("tight"))
    assert (leaking.n, len(leaking.looks)) == (20, 1)
    assert [look.n for look in tight.looks] == list(LOOKS)
    assert sum(look.weight for look in tight.looks) == pytest.approx(1.0)


def test_arms_are_drawn_in_every_round_and_shuffled() -> None:
    known = Known()
    _draw(known)
    rounds = [known.drawn[at : at + 3] for at in range(0, len(known.drawn), 3)]
    assert all(set(one) == set(Arm) for one in rounds)
    assert len({tuple(one) for one in rounds}) > 3


def test_controls_get_rarer_and_never_end() -> None:
    known = Known()
    (run,) = _draw(known, looks=(50, 200))
    assert len(run.samples[Arm.CONTROL]) == 120
    assert run.control_n == 50


def test_lost_samples_are_drawn_again_and_counted() -> None:
    (run,) = _draw(Known(lost_each=20))
    assert run.n == LOOKS[-1]
    assert run.errors.total() > 0
    evidence = judged([run], 0.01)[0].check().evidence
    assert evidence["errors"] == {arm.value: run.errors[arm] for arm in Arm}


def test_more_than_a_tenth_lost_ends_it() -> None:
    with pytest.raises(Unavailable, match="lost"):
        _draw(Known(lost_each=4))


def test_cut_short_looks_once_at_what_there_is() -> None:
    run = Run(Known(leak=5.0), LOOKS)
    sampling = Sampling([run], alpha=0.01, seed=1, step=lambda *_: None)

    async def some() -> None:
        for _ in range(12):
            for arm in Arm:
                run.samples[arm].append(await run.experiment.sample(arm))

    asyncio.run(some())
    sampling.cut_short()
    (look,) = run.looks
    assert look.n == 12
    assert look.weight == pytest.approx(1 / 3)
    assert judged([run], 0.01)[0].verdict is Verdict.BROKEN


def test_without_samples_nothing_is_claimed() -> None:
    (tested,) = judged([Run(Known(), LOOKS)], 0.01)
    assert tested.verdict is Verdict.BLIND
    assert tested.figures()["auc"] is None
    assert "too few" in tested.check().summary


def test_the_figures_that_other_programs_read() -> None:
    (tested,) = judged(_draw(Known(cached=3)), 0.01)
    figures = tested.figures()
    wanted = {"name", "n", "p", "p_holm", "auc", "auc_lower95", "auc_upper95", "control_p"}
    assert wanted | {"mde_auc", "looks", "equivalent"} <= figures.keys()
    assert tested.check().evidence["cached_tokens_max"] == {"hit": 3, "miss": 0, "control": 3}
