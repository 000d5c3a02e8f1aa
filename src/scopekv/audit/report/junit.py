"""`junit.xml`, for CI: a broken check fails, a blind one errs, an untried one is skipped."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from scopekv.audit.report.contents import Report, moment
from scopekv.audit.results import AuditResult, Check, Verdict

_TAGS = {Verdict.BROKEN: "failure", Verdict.BLIND: "error", Verdict.NOT_TESTED: "skipped"}


def junit(report: Report) -> bytes:
    """One suite an audit, one case a check; an audit that was cut short has one case more."""
    suites = [_suite(result) for result in report.results]
    root = ET.Element("testsuites", {"name": "scopekv audit", **_sums(suites)})
    root.extend(suites)
    ET.indent(root)
    text: str = ET.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'.encode()


def _suite(result: AuditResult) -> ET.Element:
    cases = [_case(result, check) for check in result.checks]
    if not result.complete:
        cases.append(_cut_short(result))
    counts = {
        "tests": len(cases),
        "failures": sum(case.find("failure") is not None for case in cases),
        "errors": sum(case.find("error") is not None for case in cases),
        "skipped": sum(case.find("skipped") is not None for case in cases),
    }
    suite = ET.Element(
        "testsuite",
        {
            "name": f"scopekv.audit.{result.audit}",
            **{name: str(count) for name, count in counts.items()},
            "time": f"{result.seconds:.3f}",
            "timestamp": moment(result.started_at).removesuffix("Z"),
        },
    )
    told = ET.SubElement(suite, "properties")
    for name, value in (("target", result.target), ("seed", result.seed)):
        ET.SubElement(told, "property", {"name": name, "value": str(value)})
    suite.extend(cases)
    return suite


def _case(result: AuditResult, check: Check) -> ET.Element:
    case = _empty_case(result, check.name)
    if check.verdict in _TAGS:
        told = ET.SubElement(case, _TAGS[check.verdict], {"message": check.summary})
        if check.verdict is not Verdict.NOT_TESTED:
            told.set("type", check.severity.value)
            told.text = f"{check.title}\ntried: {check.tried}\ncontrol: {check.control}"
    return case


def _cut_short(result: AuditResult) -> ET.Element:
    case = _empty_case(result, f"{result.audit}.complete")
    ET.SubElement(case, "error", {"message": "the audit was cut short", "type": "incomplete"})
    return case


def _empty_case(result: AuditResult, name: str) -> ET.Element:
    classname = f"scopekv.audit.{result.audit}"
    return ET.Element("testcase", {"classname": classname, "name": name})


def _sums(suites: list[ET.Element]) -> dict[str, str]:
    names = ("tests", "failures", "errors", "skipped")
    sums = {name: str(sum(int(suite.get(name, "0")) for suite in suites)) for name in names}
    return {**sums, "time": f"{sum(float(suite.get('time', '0')) for suite in suites):.3f}"}
