"""From what was found to a verdict: a negative counts only beside a control that succeeded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from scopekv.audit.results import Check, Plain, Severity, Verdict


def judged(
    name: str,
    title: str,
    *,
    broken: Sequence[str],
    held: str,
    control: str,
    control_ok: bool,
    tried: int,
    severity: Severity = Severity.HIGH,
    evidence: Mapping[str, Plain] | None = None,
) -> Check:
    """BROKEN with the sentences `broken`, if there are any; else HELD if the control held.

    `held`: what was seen if nothing was found. `control`: what had to succeed.
    """
    if broken:
        verdict, summary = Verdict.BROKEN, "; ".join(broken)
    elif control_ok:
        verdict, summary = Verdict.HELD, held
    else:
        verdict, summary = Verdict.BLIND, f"nothing was found, and {control}: it proves nothing"
    words = "did" if control_ok else "did NOT"
    return Check(
        name,
        title,
        verdict,
        summary,
        severity,
        tried,
        f"{control}: {words} succeed" if verdict is not Verdict.BLIND else control,
        evidence or {},
    )


def not_tested(name: str, title: str, why: str, severity: Severity = Severity.HIGH) -> Check:
    return Check(name, title, Verdict.NOT_TESTED, why, severity)


def plural(count: int, what: str) -> str:
    """`1 object`, `2 objects`, `2 batches`, `2 entries`."""
    if count != 1:
        ends = what.endswith(("ch", "s"))
        what = f"{what[:-1]}ies" if what.endswith("ry") else f"{what}es" if ends else f"{what}s"
    return f"{count:,} {what}"
