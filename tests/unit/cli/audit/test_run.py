"""`scopekv audit run`: what becomes of audits that fail, hang or are interrupted; a foreign
endpoint; wrong use."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from scopekv.audit.report import verify_report
from scopekv.audit.results import AuditResult, Check, Verdict
from scopekv.cli.audit import audit
from scopekv.cli.audit.sequence import Audits, Planned
from scopekv.errors import Unavailable

FOREIGN = (
    *("--out", "report", "--url", "http://127.0.0.1:9"),
    *("--victim-key", "sk-1", "--attacker-key", "sk-2"),
)


def held(name: str, *, complete: bool = True) -> AuditResult:
    check = Check(f"{name}.one", "claim", Verdict.HELD, "seen")
    return AuditResult(name, "here", 1, 0, 1.0, (check,), complete=complete)


def planned(name: str, body: Callable[[], Awaitable[AuditResult]]) -> Planned:
    return Planned(name, "here", body)


async def fine() -> AuditResult:
    return held("fine")


async def test_one_audit_that_fails_leaves_the_others() -> None:
    async def unavailable() -> AuditResult:
        raise Unavailable("nobody answers at here")

    async def faulty() -> AuditResult:
        raise ZeroDivisionError("with something private in it")

    steps = [planned("a", unavailable), planned("b", faulty), planned("c", fine)]
    first, second, third = await Audits(steps, seed=1, seconds_max=math.inf).run()
    assert first.checks[0].summary == "could not be carried out: nobody answers at here"
    assert second.checks[0].summary == "a fault of the audit itself: ZeroDivisionError"
    assert [one.exit_code for one in (first, second, third)] == [2, 2, 0]


async def test_an_interrupted_audit_cleans_up_and_no_other_begins() -> None:
    cleaned: list[str] = []
    begun, cleaning = asyncio.Event(), asyncio.Event()

    async def hanging() -> AuditResult:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cleaning.set()
            await asyncio.sleep(0.05)  # removing takes a moment
            cleaned.append("hanging")
        return held("never")

    steps = [planned("a", fine), planned("b", hanging), planned("c", fine)]
    audits = Audits(steps, seed=1, seconds_max=math.inf)
    running = asyncio.ensure_future(audits.run())
    await begun.wait()
    audits.stop()
    await cleaning.wait()
    audits.stop()  # Ctrl-C again: what was made is removed all the same
    first, second, third = await running
    assert cleaned == ["hanging"]
    assert first.verdict is Verdict.HELD
    assert second.checks[0].summary == "cut short: interrupted"
    assert third.checks[0].summary == "not begun: interrupted"
    assert [one.complete for one in (first, second, third)] == [True, False, False]


async def test_what_an_interrupted_audit_had_found_is_kept() -> None:
    begun = asyncio.Event()

    async def partial() -> AuditResult:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return held("partial", complete=False)
        return held("never")

    audits = Audits([planned("a", partial)], seed=1, seconds_max=math.inf)
    running = asyncio.ensure_future(audits.run())
    await begun.wait()
    audits.stop()
    (found,) = await running
    assert found.audit == "partial"
    assert found.verdict is Verdict.BLIND


async def test_a_budget_ends_what_hangs() -> None:
    async def hanging() -> AuditResult:
        await asyncio.Event().wait()
        return held("never")

    steps = [planned("a", hanging), planned("b", fine)]
    first, second = await Audits(steps, seed=1, seconds_max=0.05).run()
    assert first.checks[0].summary == "cut short: the time for all audits was used up"
    assert second.checks[0].summary == "not begun: the time for all audits was used up"


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(audit, ["run", *(str(one) for one in arguments)])


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--out", "report", "--only", "isolation,nothing"),
        ("--out", "report", "--url", "http://127.0.0.1:9"),
        ("--out", "report", "--victim-key", "sk-1"),
        ("--out", "report", "--url", "http://u:p@127.0.0.1:9", "--victim-key", "sk-1"),
        ("--out", "report", "--budget-minutes", "0"),
        ("--out", "report"),  # nothing runs there
        (*FOREIGN, "--only", "isolation"),
        (*FOREIGN, "--config", __file__),
    ],
)
def test_wrong_use_begins_nothing(arguments: tuple[str, ...], tmp_path: Path) -> None:
    assert run(*arguments, "--data-dir", tmp_path).exit_code == 64
    assert list(tmp_path.iterdir()) == []


def test_an_endpoint_that_does_not_answer_is_a_report_all_the_same(tmp_path: Path) -> None:
    for name in ("victim", "attacker"):
        (tmp_path / name).write_text(f"sk-of-the-{name}")
    found = run(
        *("--url", "http://127.0.0.1:9", "--json", "--seed", "5"),
        *("--victim-key", f"@{tmp_path / 'victim'}", "--attacker-key", f"@{tmp_path / 'attacker'}"),
        *("--out", tmp_path / "report", "--data-dir", tmp_path / "data"),
    )
    assert found.exit_code == 2
    plain = json.loads(found.stdout)
    assert [one["audit"] for one in plain["audits"]] == ["timing"]
    assert {"The isolation audit", "The store audit"} <= {
        one["what"] for one in plain["not_tested"]
    }
    assert verify_report(tmp_path / "report", plain["fingerprint"]).exit_code == 0
    for path in (tmp_path / "report").iterdir():
        assert b"sk-of-the" not in path.read_bytes()


def test_a_report_that_is_there_is_found_before_an_audit_begins(tmp_path: Path) -> None:
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "notes.txt").write_text("")
    found = run("--out", tmp_path / "report", "--data-dir", tmp_path / "data")
    assert found.exit_code == 2
    assert "holds other files" in found.output
