"""`report.html`: one file for a reviewer who has neither the source nor a network."""

from __future__ import annotations

from collections.abc import Mapping

import jinja2
from jinja2 import PackageLoader, StrictUndefined

from scopekv.audit.report import limits, tables
from scopekv.audit.report.contents import Report, moment, worst_first
from scopekv.audit.report.keys import fingerprint
from scopekv.audit.results import AuditResult, Check, Plain, Verdict

_FINDINGS = (Verdict.BROKEN, Verdict.BLIND)


def html(report: Report, public_key: bytes) -> bytes:
    """The page. Everything that audits say is text in it, never markup; it runs no script."""
    environment = jinja2.Environment(
        loader=PackageLoader("scopekv.audit.report", "page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        mark=limits.MARKS.__getitem__,
        named=limits.NAMES.__getitem__,
        moment=moment,
        text=tables.text,
        duration=_duration,
    )
    page = environment.get_template("report.html.j2").render(
        report=report,
        headline=limits.HEADLINES[report.verdict],
        findings=[one for verdict in _FINDINGS for one in report.checks(verdict)],
        audits=[_audit(report, result) for result in report.results],
        groups=_groups(report),
        limits=limits,
        fingerprint=fingerprint(public_key),
        short_fingerprint=fingerprint(public_key)[:16],
    )
    return page.encode()


def _audit(report: Report, result: AuditResult) -> Mapping[str, object]:
    """One audit as the page needs it."""
    checks = result.checks
    return {
        "result": result,
        "purpose": limits.PURPOSES.get(result.audit, ""),
        "repeat": report.repeat.get(result.audit, report.command),
        "counts": {one: sum(check.verdict is one for check in checks) for one in Verdict},
        "tried": sum(check.tried for check in checks),
        "scalars": tables.scalars(result.figures),
        "matrix": tables.matrix(checks),
        "tables": tables.tables(result.figures),
        "settings": _pairs(result.settings),
        "checks": [(check, _evidence(check)) for check in worst_first(checks)],
    }


def _evidence(check: Check) -> list[tuple[str, str]]:
    return _pairs(check.evidence)


def _pairs(values: Mapping[str, Plain]) -> list[tuple[str, str]]:
    return [(tables.label(name), tables.text(value)) for name, value in values.items()]


def _groups(report: Report) -> list[tuple[str, list[tuple[str, str]]]]:
    """What was not tested, by who says so."""
    found: dict[str, list[tuple[str, str]]] = {}
    for audit, one in report.untested():
        found.setdefault(audit, []).append((one.what, one.why))
    return list(found.items())


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
