"""Audits catch planted faults; `benchmarks/planted.py` does it for all of them, many times.

Here: every fault names a check that there is, and two are caught. None of those that show in time:
a test has no say in how busy its machine is.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from scopekv.audit.results import Verdict
from scopekv.simulate.model import SimulatedModel
from tests.audit.planted.registry import PLANTED

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from _planted_audits import AUDITS, Run
from planted import wilson

CAUGHT_HERE = ("digest_not_checked", "name_unkeyed")


def test_there_are_faults_for_every_audit() -> None:
    assert len(PLANTED) >= 12
    assert {planted.audit for planted in PLANTED.values()} == set(AUDITS)


@pytest.mark.slow
@pytest.mark.parametrize("kind", CAUGHT_HERE)
async def test_a_planted_fault_breaks_the_check_that_is_named_for_it(
    tmp_path: Path, model: SimulatedModel, kind: str
) -> None:
    planted = PLANTED[kind]
    with planted.switch():
        result = await AUDITS[planted.audit](
            Run(tmp_path, model, 1, planted.plugin, planted.caught_by)
        )
    broken = [check.name for check in result.checks if check.verdict is Verdict.BROKEN]
    assert [name for name in broken if name.startswith(planted.caught_by)], broken


@pytest.mark.slow
@pytest.mark.parametrize("audit", ["isolation", "store"])
async def test_nothing_is_found_where_nothing_is_planted(
    tmp_path: Path, model: SimulatedModel, audit: str
) -> None:
    result = await AUDITS[audit](Run(tmp_path, model, 1))
    assert {c.name: c.summary for c in result.checks if c.verdict is not Verdict.HELD} == {}


def test_an_interval_holds_its_rate_and_is_never_certain() -> None:
    assert wilson(20, 20)[0] == pytest.approx(0.8389, abs=1e-4)
    assert wilson(20, 20)[1] == 1.0
    assert wilson(0, 20)[0] == 0.0
    assert wilson(0, 20)[1] == pytest.approx(0.1611, abs=1e-4)
    assert wilson(0, 0) == (0.0, 1.0)
