"""`scopekv audit run`: every audit, one signed report."""

from __future__ import annotations

import asyncio
import math
import secrets
import shlex
import signal
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
import msgspec
import uvloop
from rich.console import Console
from rich.table import Table
from rich.text import Text

from scopekv.audit.report import Report, check_folder, fingerprint, report_signer, write_report
from scopekv.audit.report.limits import HEADLINES
from scopekv.audit.results import AuditResult, Verdict
from scopekv.cli.audit.keys import KeyText
from scopekv.cli.audit.output import Step, progress_bar
from scopekv.cli.audit.plan import AUDITS, Choice, Plan, foreign_plan, own_plan
from scopekv.cli.audit.sequence import Audits
from scopekv.cli.options import default_data_dir, json_option, registry_options
from scopekv.cli.up import UP_FILE

_STYLES = {Verdict.HELD: "green", Verdict.BROKEN: "bold red", Verdict.BLIND: "yellow"}
_PIPE_COLUMNS = 120  # a pipe has no width


def _audits(_ctx: click.Context, _param: click.Parameter, value: str) -> tuple[str, ...]:
    names = [name.strip() for name in value.split(",")]
    wrong = [name for name in names if name not in AUDITS]
    if wrong:
        raise click.BadParameter(f"{wrong[0][:40]!r} is no audit; it takes {', '.join(AUDITS)}")
    return tuple(name for name in AUDITS if name in names)


@click.command()
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    required=True,
    help="The report's folder, which must not be there.",
)
@click.option("--force", is_flag=True, help="Replace a report that is there.")
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The gateway's own scopekv.toml. [default: the running `scopekv up`]",
)
@registry_options
@click.option(
    "--only", "audits", default=",".join(AUDITS), show_default=True, callback=_audits, metavar="A,B"
)
@click.option(
    "--store", "stores", multiple=True, metavar="URL", help="As in `scopekv audit store`."
)
@click.option(
    "--logs", multiple=True, type=click.Path(exists=True, path_type=Path), help="The same."
)
@click.option("--url", help="An endpoint of others: timing alone, with the two keys.")
@click.option("--victim-key", type=KeyText(), help="@FILE. Of the endpoint at --url.")
@click.option("--attacker-key", type=KeyText(), help="@FILE. The same.")
@click.option("--model", default="", help="[default: the first one there is]")
@click.option("--equivalence", is_flag=True, help="Time about 1,000 prompts per arm, not 250.")
@click.option(
    "--quick",
    is_flag=True,
    help="Chats alone, fewer changes, no restarts; 100 prompts per arm, which shows less.",
)
@click.option(
    "--budget-minutes",
    type=click.FloatRange(min=0, min_open=True),
    help="End after that long; what is not done by then is reported as cut short.",
)
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), help="[default: any]")
@json_option
@click.pass_context
def run(
    ctx: click.Context,
    /,
    out: Path,
    force: bool,
    budget_minutes: float | None,
    seed: int | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Attack a live deployment in every way known here, and write a signed report of it.

    \b
    scopekv audit run --out report                          the running `scopekv up`
    scopekv audit run --out report --config scopekv.toml    a gateway, where its registry is
    scopekv audit run --out report --url https://llm.example \\
        --victim-key @a.key --attacker-key @b.key           any OpenAI-compatible endpoint

    With a registry it makes accounts and documents of its own, named audit-..., and removes them,
    also after Ctrl-C. Ctrl-C ends the audit under way; the report is written of what there is.

    Exit codes: 0 held; 1 broken; 2 nothing proved; 64 wrong use.
    """
    number = secrets.randbits(32) if seed is None else seed
    check_folder(out, force=force)
    folder: Path = (options.pop("data_dir") or default_data_dir()).expanduser().absolute()
    if options["quick"] and options["equivalence"]:
        raise click.UsageError("--quick and --equivalence exclude each other")
    choice = Choice(data_dir=folder, seed=number, **options)
    with progress_bar(quiet=as_json) as step:
        plan = _plan(choice, step)
        signer = report_signer(folder)
        started_at = int(time.time())
        limit = math.inf if budget_minutes is None else 60 * budget_minutes
        results = uvloop.run(_to_the_end(Audits(plan.planned, seed=number, seconds_max=limit)))
    arguments = sys.argv[1:] if seed is not None else [*sys.argv[1:], "--seed", str(number)]
    command = shlex.join(["scopekv", *arguments])
    report = Report(
        results=results,
        command=command,
        repeat={one.audit: f"{command} --only {one.audit}" for one in results},
        started_at=started_at,
        ended_at=int(time.time()),
        not_tested=plan.not_tested,
        secrets=plan.secrets(),
    )
    write_report(report, out, signer, force=force)
    if as_json:
        plain = report.plain() | {"report": str(out), "fingerprint": fingerprint(signer.public_key)}
        click.echo(msgspec.json.format(msgspec.json.encode(plain), indent=2).decode())
    else:
        _show(report, out, fingerprint(signer.public_key))
    ctx.exit(report.exit_code)


def _plan(choice: Choice, step: Step) -> Plan:
    keys = (choice.victim_key, choice.attacker_key)
    if choice.url is None and any(keys):
        raise click.UsageError("--victim-key and --attacker-key are for an endpoint at --url")
    if choice.url is None:
        if choice.config is None and not (choice.data_dir / UP_FILE).is_file():
            raise click.UsageError(
                f"nothing to audit: no `scopekv up` runs on {choice.data_dir}. Start one, or name "
                "the gateway's file with --config, or an endpoint with --url"
            )
        return own_plan(choice, step)
    if "@" in urlsplit(choice.url).netloc:
        raise click.UsageError("leave user and password out of --url: a report names its target")
    if not all(keys):
        raise click.UsageError("--url takes --victim-key and --attacker-key beside it")
    if choice.config is not None:
        raise click.UsageError("give --url or --config, not both")
    if "timing" not in choice.audits:
        raise click.UsageError("with --url there is the timing audit alone; leave out --only")
    return foreign_plan(choice, step)


async def _to_the_end(audits: Audits) -> tuple[AuditResult, ...]:
    """Ctrl-C and SIGTERM end the audit under way, not the report. A second one is not heard:
    removing what was made takes a moment."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, audits.stop)
    return await audits.run()


def _show(report: Report, out: Path, key: str) -> None:
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_PIPE_COLUMNS)
    table = Table(title="Verdicts", title_justify="left")
    for name in ("audit", "verdict", "attacks", "what was seen"):
        table.add_column(name, overflow="fold", justify="right" if name == "attacks" else "left")
    for result in report.results:
        verdict = Text(result.verdict.value, style=_STYLES.get(result.verdict, "dim"))
        tried = sum(check.tried for check in result.checks)
        table.add_row(Text(result.audit), verdict, f"{tried:,}", Text(_seen(result)))
    console.print(table)
    console.print(Text(". ".join(HEADLINES[report.verdict]), "bold"))
    console.print(Text(f"Report: {out / 'report.html'}", "bold"))
    console.print(Text(f"Signed; fingerprint of the key: {key}", "dim"))


def _seen(result: AuditResult) -> str:
    """The worst check in words, or how many held."""
    for verdict in (Verdict.BROKEN, Verdict.BLIND):
        found = [check for check in result.checks if check.verdict is verdict]
        if found:
            more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
            return f"{found[0].title}: {found[0].summary}{more}"
    held = sum(check.verdict is Verdict.HELD for check in result.checks)
    return f"{held} checks held" + ("" if result.complete else "; cut short")
