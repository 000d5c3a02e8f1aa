"""What a report says, whatever the form: results together, their verdict, what nobody tested."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from scopekv.audit.report.limits import NEVER_TESTED
from scopekv.audit.results import AuditResult, Check, NotTested, Plain, Verdict

FORMAT = "scopekv/audit-report/1"


@dataclass(frozen=True, slots=True, repr=False)
class Report:
    """Audits that ran together.

    `command`: as typed. `repeat`: audit -> the command that repeats it. `started_at`, `ended_at`:
    Unix time, seconds. `not_tested`: what this run left out, beside what its audits name.
    `secrets`: keys that this run used; no file of the report holds one, wherever they came from.
    """

    results: tuple[AuditResult, ...]
    command: str
    started_at: int
    ended_at: int
    repeat: Mapping[str, str] = field(default_factory=dict)
    not_tested: tuple[NotTested, ...] = ()
    secrets: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The worst of its audits; without audits nothing is proved."""
        found = {result.verdict for result in self.results}
        for verdict in (Verdict.BROKEN, Verdict.BLIND):
            if verdict in found:
                return verdict
        return Verdict.HELD if found else Verdict.BLIND

    @property
    def exit_code(self) -> int:
        """For CI: 0 held, 1 broken, 2 nothing proved."""
        return {Verdict.HELD: 0, Verdict.BROKEN: 1}.get(self.verdict, 2)

    @property
    def complete(self) -> bool:
        return all(result.complete for result in self.results)

    @property
    def tried(self) -> int:
        return sum(check.tried for result in self.results for check in result.checks)

    def counts(self) -> dict[Verdict, int]:
        """How many checks of each verdict, all verdicts named."""
        found = Counter(check.verdict for result in self.results for check in result.checks)
        return {verdict: found[verdict] for verdict in Verdict}

    def versions(self) -> dict[str, str]:
        """Of all audits. Where two saw different ones of the same thing, both are named."""
        found: dict[str, list[str]] = {}
        for result in self.results:
            for name, version in result.versions.items():
                if version not in (known := found.setdefault(name, [])):
                    known.append(version)
        return {name: ", ".join(known) for name, known in found.items()}

    def checks(self, verdict: Verdict) -> Iterator[tuple[AuditResult, Check]]:
        for result in self.results:
            yield from ((result, check) for check in result.checks if check.verdict is verdict)

    def untested(self) -> list[tuple[str, NotTested]]:
        """(audit, what): of this run ("run"), of its audits, and what no audit tests ("any")."""
        found = [("run", one) for one in self.not_tested]
        for result in self.results:
            left = [one for one in result.checks if one.verdict is Verdict.NOT_TESTED]
            found += [(result.audit, NotTested(one.title, one.summary)) for one in left]
            found += [(result.audit, one) for one in result.not_tested]
        return [*found, *(("any", one) for one in NEVER_TESTED)]

    def plain(self) -> dict[str, Plain]:
        """`report.json`."""
        return {
            "format": FORMAT,
            "verdict": self.verdict.value,
            "exit_code": self.exit_code,
            "complete": self.complete,
            "started_at": self.started_at,
            "ended_at": self.ended_at,
            "command": self.command,
            "repeat": dict(self.repeat),
            "tried": self.tried,
            "checks": {verdict.value: count for verdict, count in self.counts().items()},
            "versions": self.versions(),
            "audits": [result.plain() for result in self.results],
            "not_tested": [
                {"audit": audit, "what": one.what, "why": one.why} for audit, one in self.untested()
            ],
        }


def moment(seconds: int) -> str:
    """Unix seconds as RFC 3339 in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def worst_first(checks: Iterable[Check]) -> list[Check]:
    order = (Verdict.BROKEN, Verdict.BLIND, Verdict.HELD, Verdict.NOT_TESTED)
    return sorted(checks, key=lambda check: order.index(check.verdict))
