"""From samples to verdicts: Holm over all experiments, each beside its control."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from scopekv.audit.results import Check, Plain, Verdict
from scopekv.audit.statistics import EQUIVALENCE_BOUND, Area, area, detectable_auc, holm
from scopekv.audit.timing.experiments import Arm
from scopekv.audit.timing.sampling import CONTROL_ALPHA, Run


@dataclass(frozen=True, slots=True)
class Tested:
    """One experiment, judged. `area` and `own_area` (the control's) are None without samples."""

    run: Run
    p_holm: float
    alpha: float
    tests: int
    cache_seen: bool  # some experiment's control was detected

    @property
    def area(self) -> Area | None:
        return _area(self.run, Arm.HIT)

    @property
    def own_area(self) -> Area | None:
        return _area(self.run, Arm.CONTROL)

    @property
    def equivalent(self) -> bool:
        """Whether the whole interval of the AUC lies within the bound."""
        return self.area is not None and self.area.within(EQUIVALENCE_BOUND)

    @property
    def controlled(self) -> bool:
        return self.run.control_p < CONTROL_ALPHA

    @property
    def told_by_usage(self) -> bool:
        """Whether hits had cached tokens that no miss had, where that counts."""
        if not self.run.experiment.usage_decides:
            return False
        return _cached_max(self.run, Arm.HIT) > _cached_max(self.run, Arm.MISS)

    @property
    def verdict(self) -> Verdict:
        if self.p_holm <= self.alpha or self.told_by_usage:
            return Verdict.BROKEN
        if self.controlled and self.run.looks:
            return Verdict.HELD
        if self.run.looks and self.run.experiment.silent and self.cache_seen:
            return Verdict.NOT_TESTED
        return Verdict.BLIND

    @property
    def mde_auc(self) -> float:
        """What Holm's strictest step would have found with power 0.8, at the last look's alpha."""
        if not self.run.looks:
            return 1.0
        last = self.run.looks[-1]
        return detectable_auc(last.n, self.alpha * last.weight / self.tests)

    def figures(self) -> dict[str, Plain]:
        """One entry of `tests`: what other programs read."""
        found, own = self.area, self.own_area
        return {
            "name": self.run.experiment.name,
            "n": self.run.n,
            "p": self.run.p,
            "p_holm": self.p_holm,
            "auc": found.value if found else None,
            "auc_lower95": found.lower95 if found else None,
            "auc_upper95": found.upper95 if found else None,
            "control_p": self.run.control_p,
            "control_n": self.run.control_n,
            "control_auc": own.value if own else None,
            "mde_auc": self.mde_auc,
            "looks": [{"n": one.n, "p": one.p, "weight": one.weight} for one in self.run.looks],
            "equivalent": self.equivalent,
            "verdict": self.verdict.value,
        }

    def check(self) -> Check:
        run = self.run
        counts = {arm.value: len(samples) for arm, samples in run.samples.items()}
        return Check(
            name=f"timing.{run.experiment.name}",
            title=run.experiment.title,
            verdict=self.verdict,
            summary=self._summary(),
            severity=run.experiment.severity,
            tried=counts[Arm.HIT.value],
            control=self._control(),
            evidence=self.figures()
            | {
                "samples": counts,
                "errors": {arm.value: run.errors[arm] for arm in Arm},
                "medians": {arm.value: _median(run.values(arm)) for arm in Arm},
                "cached_tokens_max": {arm.value: _told(run, arm) for arm in Arm},
                "alpha": self.alpha,
            },
        )

    def _summary(self) -> str:
        found, n = self.area, self.run.n
        if found is None or not self.run.looks:
            return "too few samples were drawn to say anything"
        seen = f"AUC {found.value:.3f} (95 %: {found.lower95:.3f} to {found.upper95:.3f}), "
        seen += f"p {self.p_holm:.2g} after Holm, {n} per arm"
        if self.verdict is Verdict.BROKEN:
            way = "usage names another's cached tokens" if self.told_by_usage else "time tells"
            return f"{way}: {seen}"
        if self.verdict is Verdict.NOT_TESTED:
            return f"nothing to attack: {self.run.experiment.silent} ({self._control()})"
        if self.verdict is Verdict.BLIND:
            return (
                "a hit of one's own does not show in time either, so nothing follows: is the "
                "cache on? Try more --prompt-tokens or --samples"
            )
        shown = "equivalence shown" if self.equivalent else "equivalence not shown"
        return f"no difference found: {seen}; {shown}; would find an AUC from {self.mde_auc:.3f}"

    def _control(self) -> str:
        own = self.own_area
        if own is None:
            return "no control was drawn"
        seen = f"own prompts: AUC {own.value:.3f}, p {self.run.control_p:.2g}"
        if self.run.control_n:
            return f"detected with {self.run.control_n} samples; {seen}"
        return f"not detected at p < {CONTROL_ALPHA:g}; {seen}"


def judged(runs: Sequence[Run], alpha: float) -> list[Tested]:
    """All runs, with Holm's correction over all of them."""
    adjusted = holm([run.p for run in runs])
    seen = any(run.control_p < CONTROL_ALPHA for run in runs)
    return [
        Tested(run, p_holm, alpha, len(runs), seen)
        for run, p_holm in zip(runs, adjusted, strict=True)
    ]


def _area(run: Run, arm: Arm) -> Area | None:
    hits, misses = run.values(arm), run.values(Arm.MISS)
    return area(hits, misses) if hits and misses else None


def _told(run: Run, arm: Arm) -> int | None:
    """The most cached tokens that a usage told; None where none told any."""
    return max((one.cached for one in run.samples[arm] if one.cached is not None), default=None)


def _cached_max(run: Run, arm: Arm) -> int:
    return _told(run, arm) or 0


def _median(values: Sequence[float]) -> float | None:
    return round(median(values), 6) if values else None
