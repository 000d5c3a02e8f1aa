"""What audits print: progress on stderr, the result on stdout as a table or as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from scopekv.audit.results import WORST_FIRST, AuditResult, Verdict

Step = Callable[[str, int, int], None]  # what is done now, steps done, steps in all
_STYLES = {Verdict.HELD: "green", Verdict.BROKEN: "bold red", Verdict.BLIND: "yellow"}
_PIPE_COLUMNS = 160  # a pipe has no width


@contextmanager
def progress_bar(*, quiet: bool) -> Iterator[Step]:
    """A bar on stderr for as long as the block runs; nothing if `quiet` or stderr is no terminal.

    Yields what an audit calls after each step.
    """
    console = Console(stderr=True)
    columns = (
        *(TextColumn("{task.description}"), BarColumn()),
        *(MofNCompleteColumn(), TimeElapsedColumn()),
    )
    hidden = quiet or not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=hidden) as bar:
        task = bar.add_task("starting", total=None)
        yield lambda what, done, total: bar.update(
            task, description=what, completed=done, total=total
        )


def show(result: AuditResult, *, as_json: bool) -> None:
    """Print a result to stdout. The exit code is the caller's to set."""
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(result.plain()), indent=2).decode())
        return
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_PIPE_COLUMNS)
    table = Table(title=f"{result.audit} audit of {result.target}", title_justify="left")
    table.add_column("verdict", no_wrap=True)
    table.add_column("check", overflow="fold")
    table.add_column("what was seen", overflow="fold")
    table.add_column("tried", justify="right")
    for check in sorted(result.checks, key=lambda one: WORST_FIRST.index(one.verdict)):
        verdict = Text(check.verdict.value, style=_STYLES.get(check.verdict, "dim"))
        table.add_row(verdict, Text(check.name), Text(check.summary), str(check.tried))
    console.print(table)
    for one in result.not_tested:
        console.print(Text(f"not tested: {one.what}: {one.why}", style="dim"))
    cut = "" if result.complete else ", cut short"
    console.print(
        Text(f"{result.verdict.value}{cut}: seed {result.seed}, {result.seconds:.0f} s", "bold")
    )
