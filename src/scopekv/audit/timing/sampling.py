"""Drawing samples until the answer is known, with both arms under the same conditions.

A round draws one sample of each arm of each experiment, in an order that is shuffled anew, one
request after the other. What changes over time (a machine that gets slower) therefore changes all
arms alike.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from scopekv.audit.statistics import Look, faster_p, sequential_p, spending
from scopekv.audit.timing.asking import Lost
from scopekv.audit.timing.experiments import Arm, Experiment, Sample
from scopekv.errors import Unavailable

CONTROL_ALPHA = 1e-8  # of the published protocol
CONTROLS_EACH_ROUND = 100  # up to here; then every fifth round, to see that the cache is still on
_LATER_CONTROLS_EVERY = 5
_LOST_PART_MAX, _LOST_MIN = 0.1, 10  # more errors than that, and an arm's samples are chosen ones

Step = Callable[[str, int, int], None]  # what is done now, samples done, samples in all


@dataclass(slots=True)
class Run:
    """One experiment while it is sampled. `looks_at`: sizes per arm at which it is judged."""

    experiment: Experiment
    looks_at: tuple[int, ...]
    samples: dict[Arm, list[Sample]] = field(default_factory=lambda: {arm: [] for arm in Arm})
    errors: Counter[Arm] = field(default_factory=Counter)
    looks: list[Look] = field(default_factory=list)
    control_p: float = 1.0
    control_n: int = 0  # of the samples at which the control was first detected; 0: not yet
    rejected: bool = False

    @property
    def n(self) -> int:
        """Samples of the smaller of the two arms that are compared."""
        return min(len(self.samples[Arm.HIT]), len(self.samples[Arm.MISS]))

    @property
    def done(self) -> bool:
        """Whether nothing that is still to come could change the verdict, or nothing comes."""
        return self.rejected or self.n >= self.looks_at[-1]

    @property
    def p(self) -> float:
        """Of all looks together, before Holm."""
        return sequential_p(self.looks)

    def values(self, arm: Arm) -> list[float]:
        return [sample.value for sample in self.samples[arm]]

    def due(self) -> list[Arm]:
        """The arms of the next round."""
        later = self.n >= CONTROLS_EACH_ROUND and self.n % _LATER_CONTROLS_EVERY
        return [Arm.HIT, Arm.MISS] if later else list(Arm)

    def look(self) -> None:
        """Judge the samples there are, as the next look; spends that look's alpha."""
        weight = spending(self.looks_at)[len(self.looks)]
        p = faster_p(self.values(Arm.HIT), self.values(Arm.MISS))
        self.looks.append(Look(self.n, p, weight))
        self.look_at_control()

    def look_at_control(self) -> None:
        self.control_p = faster_p(self.values(Arm.CONTROL), self.values(Arm.MISS))
        if self.control_p < CONTROL_ALPHA and not self.control_n:
            self.control_n = len(self.samples[Arm.CONTROL])


class Sampling:
    """Draws for all runs. `alpha` is for all together; `seed` only shuffles."""

    def __init__(self, runs: Sequence[Run], *, alpha: float, seed: int, step: Step) -> None:
        self.runs = runs
        self._alpha = alpha
        self._dice = random.Random(seed)  # noqa: S311 - an order, nothing secret
        self._step = step

    async def draw(self) -> None:
        """Until every run is done. Cancelling leaves what was drawn so far, every look valid.

        Raises `Unavailable` where the endpoint fails too often.
        """
        while open_runs := [run for run in self.runs if not run.done]:
            places = [(run, arm) for run in open_runs for arm in run.due()]
            self._dice.shuffle(places)
            for run, arm in places:
                await self._one(run, arm)
            for run in open_runs:
                if run.n in run.looks_at:
                    run.look()
                    # Bonferroni over all runs: whatever it rejects, Holm will reject at the end.
                    run.rejected = run.p * len(self.runs) <= self._alpha

    def cut_short(self) -> None:
        """Take the next look of each unfinished run at what there is."""
        for run in self.runs:
            looked = run.looks[-1].n if run.looks else 0
            if not run.done and run.n > looked and run.samples[Arm.CONTROL]:
                run.look()

    async def _one(self, run: Run, arm: Arm) -> None:
        while True:
            try:
                sample = await run.experiment.sample(arm)
            except Lost:
                run.errors[arm] += 1
                self._check_errors(run)
                continue
            run.samples[arm].append(sample)
            self._step(run.experiment.name, *self._progress())
            return

    def _check_errors(self, run: Run) -> None:
        lost = run.errors.total()
        drawn = sum(len(samples) for samples in run.samples.values())
        if lost > max(_LOST_MIN, _LOST_PART_MAX * drawn):
            raise Unavailable(
                f"{lost} samples of {run.experiment.name} were lost against {drawn} drawn; more "
                "than a tenth lost would be a choice of samples. Ask a calmer endpoint."
            )

    def _progress(self) -> tuple[int, int]:
        done = sum(run.looks_at[-1] if run.done else run.n for run in self.runs)
        return done, sum(run.looks_at[-1] for run in self.runs)
