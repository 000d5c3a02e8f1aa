"""What audits print."""

from __future__ import annotations

import json

import pytest

from scopekv.audit.results import AuditResult, Check, NotTested, Verdict
from scopekv.cli.audit.output import progress_bar, show

RESULT = AuditResult(
    audit="isolation",
    target="http://gateway",
    seed=7,
    started_at=1,
    seconds=2.0,
    checks=(
        Check("isolation.held", "holds", Verdict.HELD, "nothing [crossed]", tried=3),
        Check("isolation.broken", "breaks", Verdict.BROKEN, "something did"),
    ),
    not_tested=(NotTested("restarts", "no [engine] of ours"),),
    figures={"cells_forbidden": 3},
)


def test_the_table_has_the_worst_first_and_what_was_not_tested(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show(RESULT, as_json=False)
    out = capsys.readouterr().out
    assert out.index("isolation.broken") < out.index("isolation.held")
    assert "nothing [crossed]" in out
    assert "not tested: restarts: no [engine] of ours" in out
    assert "broken: seed 7" in out


def test_json_is_the_whole_result(capsys: pytest.CaptureFixture[str]) -> None:
    show(RESULT, as_json=True)
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(RESULT.plain()))


def test_a_quiet_bar_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar(quiet=True) as step:
        step("asking", 1, 2)
    assert capsys.readouterr() == ("", "")
