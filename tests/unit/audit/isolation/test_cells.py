"""From cells to verdicts: no negative without its positive, and no leak taken back."""

from __future__ import annotations

from dataclasses import replace

from scopekv.audit.isolation.cells import ELSEWHERE_TRIES, Cell, Ledger, Outcome, worth_another
from scopekv.audit.results import Verdict

READ = Cell("engine.user", "engine", "/v1/c", "m", "a/alice", "a/alice", True, Outcome.HIT)
TRY = replace(READ, caller="b/bob", allowed=False, outcome=Outcome.MISS)
LEAK = replace(TRY, outcome=Outcome.HIT, cached=96)


def verdict(*cells: Cell) -> Verdict:
    ledger = Ledger()
    ledger.add(cells)
    (check,) = ledger.checks()
    return check.verdict


def test_held_takes_every_control() -> None:
    assert verdict(READ, TRY) is Verdict.HELD
    assert verdict(TRY) is Verdict.BLIND
    assert verdict(replace(READ, outcome=Outcome.MISS), TRY) is Verdict.BLIND
    assert verdict(READ, replace(TRY, proved=False)) is Verdict.BLIND
    assert verdict(READ, replace(TRY, outcome=Outcome.FAILED)) is Verdict.BLIND
    assert verdict(READ, replace(TRY, outcome=Outcome.ELSEWHERE)) is Verdict.BLIND
    assert verdict(READ, LEAK) is Verdict.BROKEN
    assert verdict(replace(READ, outcome=Outcome.MISS), LEAK) is Verdict.BROKEN


def test_a_later_try_replaces_what_proved_nothing_but_never_a_leak() -> None:
    ledger = Ledger()
    ledger.add([replace(READ, outcome=Outcome.MISS), replace(TRY, proved=False)])
    ledger.add([READ, TRY])
    assert [check.verdict for check in ledger.checks()] == [Verdict.HELD]
    ledger.add([LEAK])
    ledger.add([READ, TRY])
    assert [check.verdict for check in ledger.checks()] == [Verdict.BROKEN]
    assert (len(ledger.cells), ledger.tries) == (2, 7)


def test_the_figures_count_each_cell_once_and_by_tier_and_scope_kind() -> None:
    ledger = Ledger()
    ledger.add([READ, TRY, LEAK, replace(READ, group="host.user", place="host")])
    ledger.add([replace(TRY, group="fields.user", place="any")])
    figures = ledger.figures()
    assert (figures["cells_forbidden"], figures["forbidden_hits"]) == (2, 1)
    assert (figures["cells_allowed"], figures["allowed_misses"]) == (2, 0)
    by_tier, by_kind = figures["by_tier"], figures["by_scope_kind"]
    assert isinstance(by_tier, dict)
    assert isinstance(by_kind, dict)
    assert set(by_tier) == {"engine", "host", "any"}
    assert by_kind == {
        "user": {
            "cells_forbidden": 1,
            "forbidden_hits": 1,
            "forbidden_unproved": 0,
            "cells_allowed": 2,
            "allowed_misses": 0,
        }
    }


def test_bad_cells_are_named_in_the_evidence() -> None:
    ledger = Ledger()
    ledger.add([READ, LEAK])
    (check,) = ledger.checks()
    assert "b/bob read 96 tokens of a/alice" in check.summary
    rows = check.evidence["bad_cells"]
    assert isinstance(rows, list)
    assert rows[0]["caller"] == "b/bob"


def test_what_chance_decided_is_tried_longer_than_what_failed() -> None:
    failed = [READ, replace(TRY, outcome=Outcome.FAILED)]
    elsewhere = [READ, replace(TRY, outcome=Outcome.ELSEWHERE)]
    assert worth_another(failed, 2, tries_max=3, engines=2)
    assert not worth_another(failed, 3, tries_max=3, engines=2)
    assert worth_another(elsewhere, 3, tries_max=3, engines=2)
    assert not worth_another(elsewhere, ELSEWHERE_TRIES, tries_max=3, engines=2)
    assert not worth_another([READ, TRY], 1, tries_max=3, engines=2)
    assert not worth_another([LEAK, failed[1]], 1, tries_max=3, engines=2)
