"""`report.sarif`: SARIF 2.1.0 (OASIS, 2020) for code scanning. Rules are checks; broken and blind
ones are results, and so is an audit that was cut short."""

from __future__ import annotations

import hashlib

import msgspec

from scopekv import __version__
from scopekv.audit.report.contents import Report, moment
from scopekv.audit.results import AuditResult, Check, NotTested, Plain, Severity, Verdict
from scopekv.core.encoding import encode

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {Severity.HIGH: "error", Severity.MEDIUM: "warning", Severity.LOW: "note"}
_SCORES = {Severity.HIGH: "8.0", Severity.MEDIUM: "5.5", Severity.LOW: "2.0"}  # as GitHub sorts
_FOUND = (Verdict.BROKEN, Verdict.BLIND)


def sarif(report: Report) -> bytes:
    """One run for the whole report."""
    rules: dict[str, dict[str, Plain]] = {}
    results: list[Plain] = []
    for audit in report.results:
        for check in (*audit.checks, *_cut_short(audit)):
            rules.setdefault(check.name, _rule(check))
            if check.verdict in _FOUND:
                results.append(_result(list(rules).index(check.name), audit, check))
    run: dict[str, Plain] = {
        "tool": {
            "driver": {
                "name": "scopekv audit",
                "version": __version__,
                "semanticVersion": __version__,
                "rules": list(rules.values()),
            }
        },
        "invocations": [_invocation(report)],
        "results": results,
        "columnKind": "unicodeCodePoints",
    }
    whole = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return msgspec.json.format(msgspec.json.encode(whole), indent=1) + b"\n"


def _cut_short(audit: AuditResult) -> tuple[Check, ...]:
    if audit.complete:
        return ()
    return (
        Check(
            name=f"{audit.audit}.complete",
            title=f"the {audit.audit} audit came to its end",
            verdict=Verdict.BLIND,
            summary=f"the {audit.audit} audit was cut short",
        ),
    )


def _rule(check: Check) -> dict[str, Plain]:
    return {
        "id": check.name,
        "shortDescription": {"text": check.title},
        "defaultConfiguration": {"level": _LEVELS[check.severity]},
        "properties": {"tags": ["security"], "security-severity": _SCORES[check.severity]},
    }


def _result(rule: int, audit: AuditResult, check: Check) -> dict[str, Plain]:
    """A blind check is never more than a warning: nothing was found, and nothing was proved."""
    blind = check.verdict is Verdict.BLIND
    bound = encode("scopekv/audit-finding/1", audit.audit, audit.target, check.name)
    return {
        "ruleId": check.name,
        "ruleIndex": rule,
        "level": "warning" if blind else _LEVELS[check.severity],
        "message": {"text": f"{'Not proved' if blind else 'Broken'}: {check.summary}"},
        # What is attacked is no source file; readers of SARIF want one, and it has the evidence.
        "locations": [
            {
                "physicalLocation": {"artifactLocation": {"uri": "report.json"}},
                "logicalLocations": [{"name": audit.target, "kind": "resource"}],
            }
        ],
        "partialFingerprints": {"scopekvFinding/v1": hashlib.sha256(bound).hexdigest()},
        "properties": {
            "verdict": check.verdict.value,
            "tried": check.tried,
            "control": check.control,
            "evidence": dict(check.evidence),
            "seed": audit.seed,
        },
    }


def _invocation(report: Report) -> dict[str, Plain]:
    return {
        "commandLine": report.command,
        "executionSuccessful": report.complete,
        "exitCode": report.exit_code,
        "startTimeUtc": moment(report.started_at),
        "endTimeUtc": moment(report.ended_at),
        "toolExecutionNotifications": [_note(audit, one) for audit, one in report.untested()],
    }


def _note(audit: str, one: NotTested) -> dict[str, Plain]:
    return {"level": "note", "message": {"text": f"Not tested ({audit}): {one.what}: {one.why}"}}
