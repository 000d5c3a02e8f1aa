"""What an audit says: one shape for all of them, that the report renders and CI reads.

An audit consists of checks. A check attacks, and beside the attack it asks something that must
succeed (the *control*): a negative without a positive proves nothing (case I3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

Plain = str | int | float | bool | None | Sequence["Plain"] | Mapping[str, "Plain"]
"""What JSON can say. Never a prompt, a key, a ticket, a salt or token ids."""


class Verdict(StrEnum):
    """What a check found. Worst first in `WORST_FIRST`."""

    HELD = "held"  # the attack failed and its control succeeded
    BROKEN = "broken"  # the attack succeeded
    BLIND = "blind"  # the control failed, so the attack's failure says nothing
    NOT_TESTED = "not_tested"  # not tried; `Check.summary` says why


WORST_FIRST = (Verdict.BROKEN, Verdict.BLIND, Verdict.NOT_TESTED, Verdict.HELD)


class Severity(StrEnum):
    """How bad it is if the check is broken (SARIF levels are made of it)."""

    HIGH = "high"  # another's content, or bytes that open
    MEDIUM = "medium"  # that something exists, or how much
    LOW = "low"  # what an operator may want to know


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was tried.

    `name`: stable, lower case, dotted: `isolation.engine.user`. `title`: the claim, in one line.
    `summary`: what was seen, in one line for a reader without the source. `tried`: attacks made.
    `control`: what had to succeed and did or did not. `evidence`: figures behind the verdict.
    """

    name: str
    title: str
    verdict: Verdict
    summary: str
    severity: Severity = Severity.HIGH
    tried: int = 0
    control: str = ""
    evidence: Mapping[str, Plain] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NotTested:
    """Something that a reader may think was tested and was not."""

    what: str
    why: str


@dataclass(frozen=True, slots=True)
class AuditResult:
    """One audit, finished.

    `audit`: `isolation`, `timing` or `store`. `target`: where it was aimed, without credentials.
    `figures`: what other programs read; becomes the top level of `--json`. `settings`: sample
    sizes, limits, options as used. `versions`: of ScopeKV, the engine, Python, the machine.
    `started_at`: Unix time, seconds. `complete`: False if it was cut short.
    """

    audit: str
    target: str
    seed: int
    started_at: int
    seconds: float
    checks: tuple[Check, ...]
    not_tested: tuple[NotTested, ...] = ()
    figures: Mapping[str, Plain] = field(default_factory=dict)
    settings: Mapping[str, Plain] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    complete: bool = True

    @property
    def verdict(self) -> Verdict:
        """The worst of its checks; an audit cut short, or without checks, proves nothing."""
        found = {check.verdict for check in self.checks} - {Verdict.NOT_TESTED}
        if Verdict.BROKEN in found:
            return Verdict.BROKEN
        if not found or not self.complete:
            return Verdict.BLIND
        return next(verdict for verdict in WORST_FIRST if verdict in found)

    @property
    def exit_code(self) -> int:
        """For CI: 0 held, 1 broken, 2 blind (nothing was proved)."""
        return {Verdict.HELD: 0, Verdict.BROKEN: 1}.get(self.verdict, 2)

    def plain(self) -> dict[str, Plain]:
        """The JSON of `--json`: the figures at the top level, then the rest by name."""
        return dict(self.figures) | {
            "audit": self.audit,
            "verdict": self.verdict.value,
            "target": self.target,
            "seed": self.seed,
            "started_at": self.started_at,
            "seconds": round(self.seconds, 3),
            "complete": self.complete,
            "settings": dict(self.settings),
            "versions": dict(self.versions),
            "checks": [_check(check) for check in self.checks],
            "not_tested": [{"what": one.what, "why": one.why} for one in self.not_tested],
        }


def _check(check: Check) -> dict[str, Plain]:
    return {
        "name": check.name,
        "title": check.title,
        "verdict": check.verdict.value,
        "severity": check.severity.value,
        "summary": check.summary,
        "tried": check.tried,
        "control": check.control,
        "evidence": dict(check.evidence),
    }
